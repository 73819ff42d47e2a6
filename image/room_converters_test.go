package image

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestConverters: no more run at once than memory allows, whichever process has them, and a wait ends.
func TestConverters(t *testing.T) {
	dir := t.TempDir()
	here, there := newConverters(dir), newConverters(dir)
	here.most, there.most = 2, 2
	first, err := here.take(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	second, err := there.take(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*converterSlots{here, there} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if _, err := c.take(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a third: %v", err)
		}
		cancel()
	}
	taken := make(chan func(), 1)
	go func() {
		done, err := here.take(testContext(t))
		if err != nil {
			t.Error(err)
		}
		taken <- done
	}()
	second()
	(<-taken)()
	first()
	if n := newConverters(dir).most; n < 1 || n > mostConverters {
		t.Errorf("%d at once on this host", n)
	}
}
