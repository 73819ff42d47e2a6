package run

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDevice reads --device as podman does, and refuses what is no block device by name.
func TestDevice(t *testing.T) {
	disk := blockDevice(t)
	for _, tt := range []struct {
		text, at string
		readOnly bool
		ok       bool
	}{
		{text: disk, at: disk, ok: true},
		{text: disk + ":/dev/xvda", at: "/dev/xvda", ok: true},
		{text: disk + ":/dev/xvda:rwm", at: "/dev/xvda", ok: true},
		{text: disk + ":/dev/xvda:r", at: "/dev/xvda", readOnly: true, ok: true},
		{text: disk + ":r", at: disk, readOnly: true, ok: true},
		{text: disk + ":w"}, {text: disk + ":/dev/xvda:"}, {text: disk + ":/dev/xvda:x"}, {text: disk + ":/a:r:r"},
		{text: "/dev/null"}, {text: "/dev/none"}, {text: t.TempDir()}, {text: ""},
	} {
		m, err := parseDevice(tt.text)
		if (err == nil) != tt.ok {
			t.Errorf("%q: %v", tt.text, err)
		}
		if tt.ok && (m.at != tt.at || m.readOnly != tt.readOnly || m.from.HostPath.Path != disk || m.from.HostPath.Type != "BlockDevice") {
			t.Errorf("%q: %+v", tt.text, m)
		}
	}
}

// blockDevice is one of this machine's, which the test does not open.
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
	t.Fatal("this machine has no block device")
	return ""
}
