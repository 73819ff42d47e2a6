package image

import (
	"context"
	"sync"
)

// flights makes several pulls of the same thing one. The work goes on for as
// long as anybody waits for it, whoever began it.
type flights struct {
	mu     sync.Mutex
	active map[string]*flight
}

type flight struct {
	fanout
	waiting int
	cancel  context.CancelFunc
	done    chan struct{}
	id      string
	err     error
}

// do runs work once for all callers with the same key at a time, and returns
// its result or ctx's error.
func (f *flights) do(ctx context.Context, key string, progress func(Progress),
	work func(context.Context, func(Progress)) (string, error),
) (string, error) {
	fl := f.join(ctx, key, work)
	remove := fl.add(progress)
	defer remove()
	select {
	case <-fl.done:
		f.leave(key, fl)
		return fl.id, fl.err
	case <-ctx.Done():
		if f.leave(key, fl) {
			<-fl.done // nobody else: its temporary files are gone when we return
		}
		return "", ctx.Err()
	}
}

func (f *flights) join(ctx context.Context, key string, work func(context.Context, func(Progress)) (string, error)) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.active[key]; fl != nil {
		fl.waiting++
		return fl
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	fl := &flight{waiting: 1, cancel: cancel, done: make(chan struct{})}
	if f.active == nil {
		f.active = map[string]*flight{}
	}
	f.active[key] = fl
	go func() {
		defer cancel()
		fl.id, fl.err = work(own, fl.report)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.active[key] == fl {
			delete(f.active, key)
		}
		close(fl.done)
	}()
	return fl
}

// leave ends the flight with its last waiter, and reports whether it did.
func (f *flights) leave(key string, fl *flight) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.waiting--
	if fl.waiting > 0 {
		return false
	}
	fl.cancel()
	if f.active[key] == fl {
		delete(f.active, key) // who comes now begins anew
	}
	return true
}
