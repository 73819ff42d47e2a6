package mounts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// trouble is one kind of failure of a call.
type trouble struct {
	name string
	// late is set if the call has its effect before it fails.
	late bool
	do   func(ctx context.Context) error
}

var troubles = []trouble{
	{name: "unavailable", do: func(context.Context) error { return status.Error(codes.Unavailable, "away") }},
	{name: "unavailable afterwards", late: true, do: func(context.Context) error { return status.Error(codes.Unavailable, "away") }},
	{name: "refused", do: func(context.Context) error { return status.Error(codes.Internal, "no") }},
	{name: "refused afterwards", late: true, do: func(context.Context) error { return status.Error(codes.Internal, "no") }},
	{name: "hangs", do: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
	{name: "too much afterwards", late: true, do: func(context.Context) error {
		return status.Error(codes.ResourceExhausted, string(make([]byte, 64<<10)))
	}},
}

// TestFailures checks that no mount is left after any call has failed once in any way. A restart may follow, and the
// pod then continues or ends.
func TestFailures(t *testing.T) {
	t.Parallel()
	for _, block := range []bool{false, true} {
		for _, call := range []string{"stage", "publish", "unpublish", "unstage"} {
			for _, how := range troubles {
				for _, goesOn := range []bool{false, true} {
					restart := goesOn != block // each of the four combinations in half of the cases
					name := fmt.Sprintf("block %v/%s/%s/restart %v/on %v", block, call, how.name, restart, goesOn)
					t.Run(name, func(t *testing.T) { failure(t, block, call, how, restart, goesOn) })
				}
			}
		}
	}
}

func failure(t *testing.T, block bool, call string, how trouble, restart, goesOn bool) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t, storagev1.CSIDriverSpec{})
	var failed atomic.Bool
	fail := func(ctx context.Context, now string) error {
		if now != call || failed.Swap(true) {
			return nil
		}
		return how.do(ctx)
	}
	if how.late {
		w.driver.Set(nil, func(now string) error { return fail(ctx, now) })
	} else {
		w.driver.Set(fail, nil)
	}
	if how.name == "hangs" {
		w.timeout = 300 * time.Millisecond
		w.open()
		w.timeout = time.Minute
	}
	mounts := slices.Contains([]string{"stage", "publish"}, call)
	_, err := w.Mount(ctx, persistent("u1", block))
	if (err != nil) != mounts {
		t.Fatalf("mount: %v", err)
	}
	if !mounts {
		if err := w.Unmount(ctx, "u1", "v"); err == nil {
			t.Fatal("unmounted")
		}
	}
	if how.name == "hangs" || restart {
		w.open()
	}
	if goesOn {
		place, err := w.Mount(ctx, persistent("u1", block))
		if err != nil || place.Path == "" {
			t.Fatalf("mount again: %+v, %v", place, err)
		}
		if _, published := w.driver.Left(); published != 1 {
			t.Errorf("%d are published", published)
		}
	}
	if err := w.Unmount(ctx, "u1", "v"); err != nil {
		t.Errorf("unmount: %v", err)
	}
	w.left()
}

// TestNoDriver checks that a volume without its driver is neither mounted nor forgotten, unless no driver was called
// for it.
func TestNoDriver(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t, storagev1.CSIDriverSpec{AttachRequired: new(true)})
	w.attached = func(context.Context) (map[string]string, error) { return nil, errors.New("never") }
	if _, err := w.Mount(ctx, persistent("u1", false)); err == nil {
		t.Error("mounted without a driver")
	}
	w.gone = true
	if err := w.Unmount(ctx, "u1", "v"); err != nil {
		t.Errorf("unmount before any driver call: %v", err)
	}
	w.left()
	w.gone = false
	w.attached = func(context.Context) (map[string]string, error) { return nil, nil }
	if _, err := w.Mount(ctx, persistent("u1", false)); err != nil {
		t.Error(err)
	}
	w.gone = true
	if err := w.Unmount(ctx, "u1", "v"); err == nil {
		t.Error("unmounted without its driver")
	}
	if len(w.InUse()) != 1 {
		t.Error("the node no longer reports the volume in use")
	}
	w.gone = false
	if err := w.Unmount(ctx, "u1", "v"); err != nil {
		t.Error(err)
	}
	w.left()
}
