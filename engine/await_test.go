package engine_test

import (
	"sync"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
)

// TestStartBesideWaits starts pods while other callers wait for starts of the same keys. Each start returns a pod.
func TestStartBesideWaits(t *testing.T) {
	t.Parallel()
	w := enginetest.New()
	o := w.In(enginetest.Options(t, enginetest.Roots(t)))
	e := enginetest.Open(t, o)
	for range 20 {
		r := podRequest("p")
		var waiters sync.WaitGroup
		waiting, started := make(chan struct{}, 1), make(chan struct{})
		for range 16 {
			waiters.Go(func() {
				for {
					if err := e.AwaitStart(t.Context(), r.Key); err != nil {
						t.Error(err)
					}
					select {
					case waiting <- struct{}{}:
					default:
					}
					select {
					case <-started:
						return
					default:
					}
				}
			})
		}
		<-waiting
		id, err := e.StartPod(t.Context(), r)
		close(started)
		waiters.Wait()
		if err != nil || id == "" {
			t.Fatalf("the start returns %q, %v", id, err)
		}
		if err := e.RemovePod(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	enginetest.NothingLeft(t, o)
	w.Clean(t)
}
