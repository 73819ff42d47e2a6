package scratch

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestCreateVolume: the disk is valid and empty, every user may write it, it uses little space, and has the tables that
// its file system needs to grow while it is mounted.
func TestCreateVolume(t *testing.T) {
	for _, size := range []int64{1, 100<<20 + 1, 10 << 30, MaxSize} {
		path := filepath.Join(t.TempDir(), "disk")
		if err := CreateVolume(t.Context(), path, size); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("/sbin/e2fsck", "-fn", path).CombinedOutput(); err != nil {
			t.Errorf("%d bytes: e2fsck: %v\n%s", size, err, out)
		}
		info, err := os.Stat(path)
		if err != nil || info.Size() != Rounded(size) {
			t.Fatalf("%d bytes: %v, %v", size, info, err)
		}
		if taken := info.Sys().(*syscall.Stat_t).Blocks * 512; taken > 4<<20 {
			t.Errorf("%d bytes: takes %d", size, taken)
		}
		listed, err := exec.Command("/sbin/debugfs", "-R", "ls -l /", path).Output()
		if err != nil || strings.Contains(string(listed), "lost+found") || !strings.Contains(string(listed), " 40777 ") {
			t.Errorf("%d bytes: the top is %s, %v", size, listed, err)
		}
		about, err := exec.Command("/sbin/dumpe2fs", "-h", path).Output()
		if err != nil || !strings.Contains(string(about), "resize_inode") || strings.Contains(string(about), "sparse_super2") {
			t.Errorf("%d bytes: %s, %v", size, about, err)
		}
		if err := CreateVolume(t.Context(), path, size); !errors.Is(err, os.ErrExist) {
			t.Errorf("a second one there: %v", err)
		}
	}
}

func TestCreateVolumeFails(t *testing.T) {
	for _, size := range []int64{0, -1, MaxSize + 1} {
		path := filepath.Join(t.TempDir(), "disk")
		if err := CreateVolume(t.Context(), path, size); !errors.Is(err, errSize) {
			t.Errorf("%d bytes: %v", size, err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%d bytes: it has left %v", size, err)
		}
	}
}
