package image

import "sync"

// Progress is the state of one blob of a pull.
type Progress struct {
	// Digest names the blob; Total is its size in bytes, -1 if unknown.
	Digest string
	Total  int64
	// Offset is how much has been read.
	Offset int64
	// Done: the blob is complete and its digest verified.
	Done bool
}

// fanout passes progress on to everyone who waits for the same pull. It is
// safe for concurrent use; the functions are called one at a time.
type fanout struct {
	mu    sync.Mutex
	next  int
	funcs map[int]func(Progress)
	last  map[string]Progress
}

// add registers f, which is first told all that is known, and returns how to
// remove it.
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
