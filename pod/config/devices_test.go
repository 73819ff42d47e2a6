package config

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/api/annotations"
	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
	"github.com/bulkhead-project/bulkhead/volume"
)

// TestDeviceAccess: a pod sets the access to its devices, but cannot write to a read-only one.
func TestDeviceAccess(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		says     string
		readOnly bool
		want     string
	}{
		"nothing":              {want: "mrw"},
		"reads":                {says: "r", want: "r"},
		"read-only":            {readOnly: true, want: "r"},
		"wants more than that": {says: "mrw", readOnly: true, want: "r"},
	} {
		pod := testpod.New("Always", "c")
		c := &pod.Spec.Containers[0]
		c.VolumeDevices = []corev1.VolumeDevice{{Name: "v", DevicePath: "/dev/v"}}
		if tt.says != "" {
			pod.Annotations = map[string]string{annotations.Device + "v": tt.says}
		}
		o := &Options{Pod: pod, VolumeDir: "/volumes", Claimed: map[string]volume.Place{"v": {Path: "/dev/x", ReadOnly: tt.readOnly}}}
		if got := containerDevices(o, c)[0].GetPermissions(); got != tt.want {
			t.Errorf("%s: access %q", name, got)
		}
	}
}
