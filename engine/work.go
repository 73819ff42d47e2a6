package engine

import (
	"context"
	"runtime"
	"sync"

	"golang.org/x/sync/singleflight"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/internal/timeline"
)

// work runs the goroutines of an engine and ends them. No goroutine begins after close.
type work struct {
	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	flights singleflight.Group
	turns   chan struct{}  // see admit
	wg      sync.WaitGroup // of every goroutine

	closing sync.Mutex // guards closed
	closed  bool
}

// begin makes work possible.
func (w *work) begin() {
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.turns = make(chan struct{}, startsPerCPU*runtime.NumCPU())
}

// close ends all goroutines and waits for them. It reports whether this is the first call.
func (w *work) close() (first bool) {
	w.closing.Lock()
	first, w.closed = !w.closed, true
	w.closing.Unlock()
	if first {
		w.cancel()
	}
	w.wg.Wait()
	return first
}

// startWork counts a goroutine that Close waits for. It returns false after close. The goroutine must call
// wg.Done when it returns.
func (w *work) startWork() bool {
	w.closing.Lock()
	defer w.closing.Unlock()
	if w.closed {
		return false
	}
	w.wg.Add(1)
	return true
}

// spawn runs f in a goroutine that Close waits for. It returns false after close.
func (w *work) spawn(f func()) bool {
	if !w.startWork() {
		return false
	}
	go func() {
		defer w.wg.Done()
		f()
	}()
	return true
}

// do joins the running operation of key, or starts f with the engine's context. It returns the result, or ctx's
// error. An operation continues when its request is cancelled.
func (w *work) do(ctx context.Context, key string, f func(context.Context) (string, error)) (string, error) {
	result := w.flights.DoChan(key, func() (any, error) {
		if !w.startWork() {
			return "", errClosed
		}
		defer w.wg.Done()
		return f(timeline.Carry(w.ctx, ctx))
	})
	select {
	case r := <-result:
		id, _ := r.Val.(string)
		return id, r.Err
	case <-ctx.Done():
		return "", failure.Wrap(ctx.Err(), "wait for %s, which continues", key)
	}
}

// startsPerCPU is how many pods and containers are created concurrently for each CPU of the host. More would not be
// faster in total, and single steps would miss their deadlines.
const startsPerCPU = 4

// admit waits for the caller's turn to create a pod or a container, in the order of the calls. It also returns when
// ctx or the engine ends.
func (w *work) admit(ctx context.Context) (done func(), err error) {
	select {
	case w.turns <- struct{}{}:
		return func() { <-w.turns }, nil
	case <-ctx.Done():
		return nil, failure.Wrap(ctx.Err(), "wait for a turn to start")
	}
}
