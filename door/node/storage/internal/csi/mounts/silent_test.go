package mounts

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/internal/place"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testfs"
)

// TestMounted checks that mount points are recognised, even if the file system does not answer.
func TestMounted(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts")
	}
	dir := t.TempDir()
	silent := testfs.Silent(t, filepath.Join(dir, "silent"))
	defer silent.End()
	for _, name := range []string{"directory", "bound"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("bound", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	bound := filepath.Join(dir, "bound")
	if err := unix.Mount(filepath.Join(dir, "directory"), bound, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(bound, unix.MNT_DETACH) }()
	for name, want := range map[string]bool{"directory": false, "link": false, "bound": true, "silent": true} {
		if got, err := mounted(filepath.Join(dir, name)); got != want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, name := range []string{"none", "none/below", "directory/none"} {
		if got, err := mounted(filepath.Join(dir, name)); got || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestSilentVolume checks that a volume with a file system that does not answer delays no other volume. Only its driver
// waits for it.
func TestSilentVolume(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts")
	}
	ctx := testdeadline.Context(t, 20*time.Second)
	w := newWorld(t, storagev1.CSIDriverSpec{})
	if _, err := w.Mount(ctx, persistent("u1", false)); err != nil {
		t.Fatal(err)
	}
	r := w.list()[0]
	staged, published := testfs.Silent(t, r.stagePath()), testfs.Silent(t, r.targetPath())
	defer staged.End()
	defer published.End()
	w.reboot() // staged volumes are staged again
	w.driver.Set(func(context.Context, string) error { return errors.New("the server is away") }, nil)
	if _, err := w.Mount(ctx, persistent("u1", false)); err == nil || ctx.Err() != nil {
		t.Errorf("mounted: %v", err)
	}
	if err := w.Unmount(ctx, "u1", "v"); err == nil || ctx.Err() != nil {
		t.Errorf("unmounted: %v", err)
	}
	w.driver.Set(nil, nil)
	other := persistent("u2", false)
	other.PV.Name, other.PV.Spec.CSI.VolumeHandle = "pv-2", "handle-2"
	if _, err := w.Mount(ctx, other); err != nil {
		t.Errorf("another volume: %v", err)
	}
	staged.End()
	published.End()
	for _, uid := range []types.UID{"u1", "u2"} {
		if err := w.Unmount(ctx, uid, "v"); err != nil {
			t.Errorf("%s: %v", uid, err)
		}
	}
	w.left()
}

// TestCloseBesideSilence checks that a file system that hangs while its files get the group does not keep the node from
// stopping.
func TestCloseBesideSilence(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts")
	}
	ctx := testdeadline.Context(t, 20*time.Second)
	policy := storagev1.FileFSGroupPolicy
	w := newWorld(t, storagev1.CSIDriverSpec{FSGroupPolicy: &policy})
	q := persistent("u1", false)
	q.FSGroup = new(int64(4321))
	begun, goOn := make(chan struct{}), make(chan struct{})
	w.driver.Set(nil, func(call string) error {
		if call == "publish" {
			close(begun)
			<-goOn
		}
		return nil
	})
	hasty, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { _, err := w.Mount(hasty, q); done <- err }()
	<-begun
	silent := testfs.Silent(t, w.list()[0].targetPath())
	defer silent.End()
	close(goOn)
	for m := w.list()[0]; m.Phase != published && ctx.Err() == nil; m = w.list()[0] { // the files get the group after that
		time.Sleep(time.Millisecond)
	}
	m := w.Mounter
	m.patience = 50 * time.Millisecond
	if err := m.Close(); !errors.Is(err, place.ErrSilent) {
		t.Errorf("close: %v", err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("mounted: %v", err)
	}
	silent.End()
	w.driver.Set(nil, nil)
	m.patience = endWait
	if err := m.Close(); err != nil {
		t.Errorf("close after the file system has answered: %v", err)
	}
	w.open() // the next process
	if err := w.Unmount(ctx, "u1", "v"); err != nil {
		t.Error(err)
	}
	w.left()
}
