package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestStartGivenUp checks that a cancelled start is undone at every step if GiveUp is set, and otherwise continues.
func TestStartGivenUp(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"Template", "Start", "StartSandbox"} {
		for _, gives := range []bool{true, false} {
			t.Run(step, func(t *testing.T) {
				t.Parallel()
				w := enginetest.New()
				o := w.In(enginetest.Options(t, enginetest.Roots(t)))
				e := enginetest.Open(t, o)
				release := w.Block(step)
				r := podRequest("p")
				r.GiveUp = gives
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() {
					_, err := e.StartPod(ctx, r)
					ended <- err
				}()
				for deadline := testdeadline.Context(t, 10*time.Second); !slices.Contains(w.Calls(), step); {
					if deadline.Err() != nil {
						t.Fatalf("the start does not reach %s: %q", step, w.Calls())
					}
					time.Sleep(time.Millisecond)
				}
				cancel()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
				if working := e.Working(); (working == 0) != gives {
					t.Errorf("%d pods are in the making", working)
				}
				release()
				if !gives {
					id, err := e.StartPod(t.Context(), r)
					if err != nil {
						t.Fatal(err)
					}
					if err := e.RemovePod(t.Context(), id); err != nil {
						t.Error(err)
					}
				}
				enginetest.NothingLeft(t, o)
				w.Clean(t)
			})
		}
	}
}
