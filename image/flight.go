package image

import (
	"context"
	"sync"
)

// flights merges concurrent pulls of the same image into one. The work goes on while at least one caller waits for it.
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

// do runs work once for all concurrent callers with the same key, and returns its result or ctx's error.
func (f *flights) do(ctx context.Context, key string, progress func(Progress),
	work func(context.Context, func(Progress)) (string, error),
) (string, error) {
	fl := f.join(ctx, key, work)
	remove := fl.add(progress)
	defer remove()
	select {
	case <-fl.done:
		f.removeWaiter(key, fl)
		return fl.id, fl.err
	case <-ctx.Done():
		if f.removeWaiter(key, fl) {
			<-fl.done // the last waiter: the temporary files are removed before do returns
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

// removeWaiter cancels the flight with its last waiter, and reports whether it did.
func (f *flights) removeWaiter(key string, fl *flight) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.waiting--
	if fl.waiting > 0 {
		return false
	}
	fl.cancel()
	if f.active[key] == fl {
		delete(f.active, key) // the next caller starts another flight
	}
	return true
}

// Progress is the state of one blob of a pull.
type Progress struct {
	// Digest names the blob; Total is its size in bytes, -1 if unknown.
	Digest string
	Total  int64
	// Offset is the number of bytes read.
	Offset int64
	// Done: the blob is complete and its digest verified.
	Done bool
}

// fanout passes progress on to all callers that wait for the same pull. It is safe for concurrent use; the functions
// are called one at a time.
type fanout struct {
	mu    sync.Mutex
	next  int
	funcs map[int]func(Progress)
	last  map[string]Progress
}

// add registers f and calls it first with everything known so far. remove removes it.
func (o *fanout) add(f func(Progress)) (remove func()) {
	if f == nil {
		return func() {}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.funcs == nil {
		o.funcs = map[int]func(Progress){}
	}
	id := o.next
	o.next++
	o.funcs[id] = f
	for _, p := range o.last {
		f(p)
	}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.funcs, id)
	}
}

func (o *fanout) report(p Progress) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == nil {
		o.last = map[string]Progress{}
	}
	o.last[p.Digest] = p
	for _, f := range o.funcs {
		f(p)
	}
}
