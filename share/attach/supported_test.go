package attach

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSupported: this kernel can attach directories, as this package's tests show.
func TestSupported(t *testing.T) {
	if err := Supported(); err != nil {
		t.Error(err)
	}
	old := []error{tooOld(unix.ENOSYS), tooOld(unix.EINVAL), oldRelease("5.10.0-34-amd64"), oldRelease("5.13.1"), oldRelease("4.19.0")}
	for _, err := range old {
		if err == nil || !strings.Contains(err.Error(), "Linux 5.14") {
			t.Errorf("an old kernel: %v", err)
		}
	}
	for _, release := range []string{"5.14.0-1", "6.1.0-44-amd64", "odd"} {
		if err := oldRelease(release); err != nil {
			t.Errorf("%s: %v", release, err)
		}
	}
}
