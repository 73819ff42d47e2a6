package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
	"github.com/bulkhead-project/bulkhead/volume"
)

// TestClaimed: a claim is its mounted place, or a named volume if claims are not mounted. An unmounted claim is no path
// of the host.
func TestClaimed(t *testing.T) {
	t.Parallel()
	claim := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}
	own := corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	driver := corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}}
	reads := corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d", ReadOnly: new(true)}}
	for name, tt := range map[string]struct {
		source   corev1.VolumeSource
		claimed  map[string]volume.Place
		share    string
		disk     *containerv1.Block
		readOnly bool
		refused  bool
		access   string
	}{
		"the host's":  {source: claim, share: "volume:data", access: "mrw"},
		"mounted":     {source: claim, claimed: map[string]volume.Place{"v": {Path: "/srv"}}, share: "/srv", access: "mrw"},
		"not mounted": {source: claim, claimed: map[string]volume.Place{}, access: "mrw"},
		"read-only": {
			source: claim, claimed: map[string]volume.Place{"v": {Path: "/srv", ReadOnly: true}}, share: "/srv", readOnly: true, access: "r",
		},
		"ephemeral":      {source: own, claimed: map[string]volume.Place{"v": {Path: "/srv"}}, share: "/srv", access: "mrw"},
		"driver":         {source: driver, claimed: map[string]volume.Place{"v": {Path: "/srv"}}, share: "/srv", access: "mrw"},
		"driver, read":   {source: reads, claimed: map[string]volume.Place{"v": {Path: "/srv"}}, share: "/srv", readOnly: true, access: "mrw"},
		"none ephemeral": {source: own, refused: true, access: "mrw"},
		"no driver":      {source: driver, refused: true, access: "mrw"},
		"disk": {
			source: claim, claimed: map[string]volume.Place{"v": {Path: "/dev/x", Disk: true}}, share: "/dev/x", access: "mrw",
			disk: &containerv1.Block{Name: "/dev/x", FS: containerv1.FSExt4},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := testpod.New("Always", "c")
			pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: tt.source}}
			c := &pod.Spec.Containers[0]
			c.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
			c.VolumeDevices = []corev1.VolumeDevice{{Name: "v", DevicePath: "/dev/v"}}
			o := &Options{Pod: pod, VolumeDir: "/volumes", Claimed: tt.claimed}
			beyond := Beyond(o)
			if got := beyond.HostPaths["v"].Name; got != tt.share {
				t.Errorf("it is %q, want %q", got, tt.share)
			}
			disk, is := beyond.Disks["v"]
			if is != (tt.disk != nil) || is && !cmp.Equal(disk, *tt.disk) {
				t.Errorf("disk %+v", disk)
			}
			mounts, err := containerMounts(o, c, nil, nil)
			if (err != nil) != tt.refused || err == nil && (mounts[0].GetReadonly() != tt.readOnly || mounts[0].GetHostPath() == "") {
				t.Errorf("%v, %v", mounts, err)
			}
			if got := containerDevices(o, c)[0].GetPermissions(); got != tt.access {
				t.Errorf("access %q", got)
			}
		})
	}
}
