package naming

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

func unused() error { return nil }

// TestNames: a wanted volume is not removed, a removal in progress is waited for, and uses of other volumes wait
// for nothing.
func TestNames(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 10*time.Second)
	var n Names
	first, err := n.Want(ctx, []string{"a", "b", "a"})
	if err != nil {
		t.Fatal(err)
	}
	second, err := n.Want(ctx, []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	for _, done := range []func(){first, first, second} {
		if _, err := n.Remove(ctx, "a", unused); !errors.Is(err, errdefs.ErrConflict) {
			t.Errorf("wanted: %v", err)
		}
		done()
	}
	named := errors.New("named")
	if _, err := n.Remove(ctx, "a", func() error { return named }); !errors.Is(err, named) {
		t.Errorf("used: %v", err)
	}
	removed, err := n.Remove(ctx, "a", unused)
	if err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := n.Want(soon, []string{"x", "a"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("being removed: %v", err)
	}
	if _, err := n.Remove(soon, "a", unused); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("being removed: %v", err)
	}
	other, err := n.Want(ctx, []string{"x"})
	if err != nil {
		t.Fatal(err)
	}
	other()
	wanted := make(chan error, 1)
	go func() {
		done, err := n.Want(ctx, []string{"a"})
		if err == nil {
			done()
		}
		wanted <- err
	}()
	removed()
	if err := <-wanted; err != nil {
		t.Error(err)
	}
	if len(n.wanted) > 0 || len(n.going) > 0 {
		t.Errorf("left: %v, %v", n.wanted, n.going)
	}
}
