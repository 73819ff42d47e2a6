package container

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bulkhead-project/bulkhead/api/annotations"
	"github.com/bulkhead-project/bulkhead/pod/podapi"
)

// TestDevice parses --device as podman does, and refuses other files than block devices.
func TestDevice(t *testing.T) {
	disk := blockDevice(t)
	for _, tt := range []struct {
		text, at string
		access   string
		ok       bool
	}{
		{text: disk, at: disk, access: "rwm", ok: true},
		{text: disk + ":/dev/xvda", at: "/dev/xvda", access: "rwm", ok: true},
		{text: disk + ":/dev/xvda:rwm", at: "/dev/xvda", access: "rwm", ok: true},
		{text: disk + ":/dev/xvda:r", at: "/dev/xvda", access: "r", ok: true},
		{text: disk + ":r", at: disk, access: "r", ok: true},
		{text: disk + ":w"}, {text: disk + ":/dev/xvda:"}, {text: disk + ":/dev/xvda:x"}, {text: disk + ":/a:r:r"},
		{text: "/dev/null"}, {text: "/dev/none"}, {text: t.TempDir()}, {text: ""},
	} {
		m, err := parseDevice(tt.text)
		if (err == nil) != tt.ok {
			t.Errorf("%q: %v", tt.text, err)
		}
		if tt.ok && (m.at != tt.at || m.access != tt.access || m.from.HostPath.Path != disk || m.from.HostPath.Type != "BlockDevice") {
			t.Errorf("%q: %+v", tt.text, m)
		}
	}
}

// TestDeviceOfPod: a device is in the container's volumeDevices, and the engine can read the pod.
func TestDeviceOfPod(t *testing.T) {
	disk := blockDevice(t)
	m, err := described(t, "--device", disk+":/dev/xvda:r", "busybox")
	if err != nil {
		t.Fatal(err)
	}
	found, err := podapi.Read(m.Name, []byte(m.YAML))
	if err != nil {
		t.Fatal(err)
	}
	p := found.Pods[0]
	c, source := p.Spec.Containers[0], p.Spec.Volumes[0]
	if len(c.VolumeMounts) != 0 || len(c.VolumeDevices) != 1 || c.VolumeDevices[0].DevicePath != "/dev/xvda" ||
		source.HostPath == nil || source.HostPath.Path != disk || p.Annotations[annotations.Device+source.Name] != "r" {
		t.Errorf("%+v, %+v, %v", c, source, p.Annotations)
	}
}

// blockDevice returns a block device of the host. The test does not open it.
func blockDevice(t *testing.T) string {
	t.Helper()
	all, err := filepath.Glob("/dev/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if info, err := os.Lstat(path); err == nil && info.Mode()&(os.ModeDevice|os.ModeCharDevice) == os.ModeDevice {
			return path
		}
	}
	t.Fatal("this host has no block device")
	return ""
}
