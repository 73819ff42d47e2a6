package mounts

import (
	"context"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/claims"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// mounts makes the driver mount a directory where it publishes a volume for the pod, as a real driver does.
func (w *world) mounts(q claims.Request) {
	w.t.Helper()
	if os.Geteuid() != 0 {
		w.t.Skip("needs root: mounts")
	}
	r, err := recordOf(q)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Root = w.root
	at := r.targetPath()
	w.driver.Set(func(_ context.Context, call string) error {
		if call == "unpublish" {
			return unix.Unmount(at, 0)
		}
		return nil
	}, func(call string) error {
		if call != "publish" {
			return nil
		}
		if is, err := mounted(at); is || err != nil {
			return err
		}
		return unix.Mount(w.t.TempDir(), at, "", unix.MS_BIND, "")
	})
	w.t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}

// TestTwice checks that a claim that a pod has under two names is published once, as the first name requires, and
// unpublished with the last.
func TestTwice(t *testing.T) {
	t.Parallel()
	for name, readOnly := range map[string][2]bool{"first": {true, false}, "second": {false, true}} {
		for _, last := range []string{"v", "again"} {
			t.Run(name+" is read-only/"+last+" ends last", func(t *testing.T) {
				t.Parallel()
				ctx := testdeadline.Context(t, 5*time.Second)
				w := newWorld(t, storagev1.CSIDriverSpec{RequiresRepublish: new(true)})
				one, two := persistent("u1", false), persistent("u1", false)
				one.ReadOnly, two.ReadOnly, two.Volume = readOnly[0], readOnly[1], "again"
				w.mounts(one)
				for _, q := range []claims.Request{one, two, one, two} {
					if place, err := w.Mount(ctx, q); err != nil || place.ReadOnly != one.ReadOnly {
						t.Errorf("%s: %+v, %v", q.Volume, place, err)
					}
				}
				if got := w.driver.Calls(); !reflect.DeepEqual(got, []string{"stage", "publish"}) {
					t.Errorf("calls: %v", got)
				}
				w.tend(ctx)
				for _, r := range w.driver.Requests() {
					if p, is := r.(*csi.NodePublishVolumeRequest); is && p.GetReadonly() != one.ReadOnly {
						t.Errorf("published with another readonly: %v", p)
					}
				}
				first := map[string]string{"v": "again", "again": "v"}[last]
				if err := w.Unmount(ctx, "u1", first); err != nil {
					t.Error(err)
				}
				if _, published := w.driver.Left(); published != 1 {
					t.Errorf("%d are published with %s", published, last)
				}
				if is, err := mounted(w.list()[0].targetPath()); !is || err != nil {
					t.Errorf("the volume of %s: %v, %v", last, is, err)
				}
				if err := w.Unmount(ctx, "u1", last); err != nil {
					t.Error(err)
				}
				w.left()
			})
		}
	}
}

// TestTwiceAnew checks that a volume under two names is published once more after a reboot or an unmount from outside.
func TestTwiceAnew(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(w *world){
		"boot": func(w *world) { w.reboot() }, "unmounted outside": func(w *world) { w.driver.Reboot() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testdeadline.Context(t, 5*time.Second)
			w := newWorld(t, storagev1.CSIDriverSpec{})
			one, two := persistent("u1", false), persistent("u1", false)
			one.ReadOnly, two.Volume = true, "again"
			w.mounts(one)
			for range 2 {
				before := len(w.driver.Requests())
				for _, q := range []claims.Request{one, two} {
					if _, err := w.Mount(ctx, q); err != nil {
						t.Error(err)
					}
				}
				published := 0
				for _, r := range w.driver.Requests()[before:] {
					if p, is := r.(*csi.NodePublishVolumeRequest); is {
						if published++; !p.GetReadonly() {
							t.Errorf("published with another readonly: %v", p)
						}
					}
				}
				if is, err := mounted(w.list()[0].targetPath()); !is || err != nil || published != 1 {
					t.Errorf("mounted %v, %v, published %d times", is, err, published)
				}
				if err := unix.Unmount(w.list()[0].targetPath(), 0); err != nil {
					t.Error(err)
				}
				lose(w)
			}
			w.driver.Set(nil, nil)
			for _, volume := range []string{"v", "again"} {
				if err := w.Unmount(ctx, "u1", volume); err != nil {
					t.Error(err)
				}
			}
			w.left()
		})
	}
}
