package claims

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// fakeDevice returns a file and another path to it.
func fakeDevice(t *testing.T) (path, other string) {
	t.Helper()
	path, other = filepath.Join(t.TempDir(), "disk"), filepath.Join(t.TempDir(), "by-id")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Symlink(path, other)); err != nil {
		t.Fatal(err)
	}
	return path, other
}

// TestDeviceLock checks that only one pod at a time probes a device, by whatever path, until it is done.
func TestDeviceLock(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 10*time.Second)
	path, other := fakeDevice(t)
	var formatted atomic.Bool
	d := &devices{held: map[device]chan struct{}{}, read: func(*os.File) (string, error) {
		if formatted.Load() {
			return ext4, nil
		}
		return "", nil
	}}
	_, found, free, err := d.probe(ctx, path)
	if err != nil || found != "" {
		t.Fatalf("%q, %v", found, err)
	}
	second := make(chan string, 1)
	go func() {
		_, found, free, err := d.probe(ctx, other)
		if err != nil {
			found = err.Error()
		} else {
			free()
		}
		second <- found
	}()
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, _, _, err := d.probe(short, other); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("device in use by another pod: %v", err)
	}
	formatted.Store(true)
	free()
	if found := <-second; found != ext4 {
		t.Errorf("the second pod found %q", found)
	}
}

// TestSilentDevice checks that a device that does not answer delays callers only until their context ends, is read
// once, and works when it answers.
func TestSilentDevice(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 10*time.Second)
	w := newWorld(t)
	w.pv.Spec.Local.Path, _ = fakeDevice(t)
	answer := make(chan struct{})
	var asked atomic.Int32
	k := w.open(t)
	k.devices.read = func(*os.File) (string, error) {
		asked.Add(1)
		<-answer
		return ext4, nil
	}
	v := k.Of(w.pod, w.dir)
	for range 3 {
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		if place, err := v.disk(short, record{PV: w.pv}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v", place, err)
		}
		cancel()
	}
	if asked.Load() > 1 {
		t.Errorf("%d reads", asked.Load())
	}
	close(answer)
	if place, err := v.disk(ctx, record{PV: w.pv}); err != nil || !place.Disk {
		t.Errorf("%v, %v", place, err)
	}
}
