package guest

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestBackoff: each pause is twice as long as the one before, from ten milliseconds to
// two seconds.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Backoff
		var got []int64
		for range 10 {
			began := time.Now()
			if !b.Wait(t.Context(), nil) {
				t.Fatal("no further attempt")
			}
			got = append(got, time.Since(began).Milliseconds())
		}
		if want := []int64{10, 20, 40, 80, 160, 320, 640, 1280, 2000, 2000}; !slices.Equal(got, want) {
			t.Errorf("pauses of %v ms, want %v", got, want)
		}
	})
}

// TestBackoffEnds: the end of the VM or of the context ends the pause, and no attempt follows.
func TestBackoffEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ended := make(chan struct{})
		close(ended)
		if (&Backoff{}).Wait(t.Context(), ended) {
			t.Error("another attempt after the VM's end")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if (&Backoff{}).Wait(ctx, nil) {
			t.Error("another attempt after the end of the context")
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}
