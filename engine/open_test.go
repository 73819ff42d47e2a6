package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
)

// TestOpenFails checks that a failed Open releases everything that the next one needs.
func TestOpenFails(t *testing.T) {
	t.Parallel()
	for name, spoiled := range map[string]func(data string) string{
		"its images":             func(data string) string { return filepath.Join(data, "images") },
		"users of its data":      func(data string) string { return filepath.Join(data, "uids") },
		"its pods":               func(data string) string { return filepath.Join(data, "sandboxes") },
		"its names":              func(data string) string { return filepath.Join(data, "names") },
		"a name that is a crash": func(data string) string { return filepath.Join(data, "names", "test", ".full") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := enginetest.New()
			o := w.In(enginetest.Options(t, enginetest.Roots(t)))
			if err := enginetest.Open(t, o).Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			o.Images = nil
			path := spoiled(o.Roots.Data)
			mend := func() {
				if err := os.RemoveAll(path); err != nil {
					t.Error(err)
				}
			}
			if name == "a name that is a crash" {
				if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil {
					t.Fatal(err)
				}
			} else {
				mend = spoil(t, path)
			}
			if e, err := engine.Open(t.Context(), o); err == nil || e != nil {
				t.Errorf("opened: %v", err)
			}
			mend()
			enginetest.Open(t, o)
		})
	}
	o := enginetest.New().In(enginetest.Options(t, enginetest.Roots(t)))
	o.Instance = "no/name"
	if _, err := engine.Open(t.Context(), o); err == nil {
		t.Error("opened with an invalid name")
	}
}

// TestNoOtherShim checks that callers get an error while a dead shim cannot be replaced, and that the pod works
// again after the replacement.
func TestNoOtherShim(t *testing.T) {
	t.Parallel()
	d := newDisks(t)
	pod := d.start(podRequest("p"))
	r := containerRequest(t, d.e)
	release := d.w.Block("Adopt")
	d.w.Fail("Adopt", enginetest.ErrInjected)
	d.w.Shim(d.e.StateDir(pod)).Die()
	d.called("Adopt")
	asks, answer := make(chan struct{}), make(chan error, 1)
	go func() {
		close(asks)
		_, err := d.e.CreateContainer(context.WithoutCancel(t.Context()), pod, r)
		answer <- err
	}()
	<-asks
	release()
	if err := <-answer; grpccode.Of(err) != codes.FailedPrecondition {
		t.Errorf("%v", err)
	}
	d.w.Fail("Adopt", nil)
	until(t, "another shim", func() bool { return d.e.ShimDone(t, pod) == d.w.Shim(d.e.StateDir(pod)).Done() })
	if _, err := d.e.CreateContainer(t.Context(), pod, r); err != nil {
		t.Errorf("by the next shim: %v", err)
	}
}

// TestEndIsTriedAgain checks that the cleanup after the end of a VM is retried after a failure.
func TestEndIsTriedAgain(t *testing.T) {
	t.Parallel()
	d := newDisks(t)
	pod := d.start(podRequest("p"))
	d.w.Once("Detach", enginetest.ErrInjected)
	d.w.Shim(d.e.StateDir(pod)).EndVM("it ended")
	until(t, "the network's end", func() bool { return d.w.Networks() == 0 })
	if err := d.e.RemovePod(t.Context(), pod); err != nil {
		t.Error(err)
	}
	enginetest.NothingLeft(t, d.o)
}
