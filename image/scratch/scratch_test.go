package scratch

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testfs"
)

func TestCreate(t *testing.T) {
	for name, size := range map[string]int64{
		"one byte":   1,
		"small":      10 << 20,
		"odd":        100<<20 + 1,
		"ten GiB":    10 << 30,
		"whole slot": MaxSize,
	} {
		t.Run(name, func(t *testing.T) {
			m := Maker{Templates: t.TempDir()}
			var wg sync.WaitGroup
			path := filepath.Join(t.TempDir(), "disk")
			for i := range 4 { // concurrently, but the template is built once
				wg.Go(func() {
					if err := m.Create(t.Context(), path+string(rune('0'+i)), size); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			path += "0"
			out, err := exec.Command("/sbin/e2fsck", "-fn", path).CombinedOutput()
			if err != nil {
				t.Errorf("e2fsck: %v\n%s", err, out)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			// A guest with its own kernel can write up to the disk's end, beyond the file system's.
			if want := max((size+Unit-1)/Unit*Unit, MinSize); info.Size() != want {
				t.Errorf("size %d, want %d", info.Size(), want)
			}
			// A sparse file: its disk usage is a small part of its size.
			if taken := info.Sys().(*syscall.Stat_t).Blocks * 512; taken > 16<<20 {
				t.Errorf("takes %d bytes", taken)
			}
			start := time.Now()
			if err := m.Create(t.Context(), path+"again", size); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d MiB: copy %v", size>>20, time.Since(start))
			checkMount(t, path, max(size, MinSize))
		})
	}
}

// checkMount mounts the disk and writes to it until it is full.
func checkMount(t *testing.T, disk string, size int64) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Log("not mounted: that needs root")
		return
	}
	// The guest's kernel has quotas, the host's may not.
	if out, err := exec.Command("/sbin/tune2fs", "-O", "^quota,^project", disk).CombinedOutput(); err != nil {
		t.Fatalf("tune2fs: %v: %s", err, out)
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-o", "loop", disk, dir).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	defer testfs.Unmount(t, dir)
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	free := int64(fs.Bavail) * fs.Bsize
	if free > size+Unit || free < size*8/10 {
		t.Errorf("%d of %d bytes free", free, size)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
	if err := unix.Setxattr(filepath.Join(dir, "f"), "trusted.overlay.opaque", []byte("y"), 0); err != nil {
		t.Errorf("overlayfs could not use it: %v", err)
	}
	if err := unix.Mknod(filepath.Join(dir, "whiteout"), unix.S_IFCHR, 0); err != nil {
		t.Errorf("overlayfs could not use it: %v", err)
	}
}

func TestCreateFails(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	existing := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(existing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		ctx  context.Context
		path string
		size int64
		want error
	}{
		{"nothing", t.Context(), "", 0, errSize},
		{"negative", t.Context(), "", -1, errSize},
		{"larger than a slot", t.Context(), "", MaxSize + 1, errSize},
		{"there already", t.Context(), existing, 1 << 20, os.ErrExist},
		{"no directory", t.Context(), "/nonexistent/disk", 1 << 20, os.ErrNotExist},
		{"cancelled", ended, "", 1 << 20, context.Canceled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := Maker{Templates: t.TempDir()}
			path := tc.path
			if path == "" {
				path = filepath.Join(t.TempDir(), "disk")
			}
			err := m.Create(tc.ctx, path, tc.size)
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if _, err := os.Stat(path); tc.path == "" && err == nil {
				t.Error("a failed disk was left")
			}
		})
	}
}
