package fsys

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys/nodes"
)

// handle is a file that the guest has open.
type handle struct {
	id    uint64
	fd    int
	flags int // of open(2)
	ref   *nodes.Ref
	all   *handles

	// users and dead are guarded by all.mu: the descriptor is closed when it is dead and has no users.
	users int
	dead  bool

	// plain writes where it is told to, though the handle appends; -1 until it is needed.
	mu    sync.Mutex
	plain int

	dir position
}

// handles are those of a file system.
type handles struct {
	max int

	mu    sync.Mutex
	next  uint64
	open  map[uint64]*handle
	plain int // handles that have a second descriptor
}

// add makes a handle of fd and of r, which both belong to it from then on, also if it fails.
func (hs *handles) add(fd, flags int, r *nodes.Ref) (*handle, error) {
	h := &handle{fd: fd, flags: flags, ref: r, all: hs, plain: -1}
	r.Opened()
	hs.mu.Lock()
	full := len(hs.open)+hs.plain >= hs.max
	if !full {
		hs.next++
		h.id = hs.next
		hs.open[h.id] = h
	}
	hs.mu.Unlock()
	if full {
		h.close()
		return nil, unix.ENFILE
	}
	return h, nil
}

// hold is the handle of that id, in use until it is released. It is EBADF if it is none of the node's.
func (hs *handles) hold(id, node uint64) (*handle, error) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.open[id]
	if h == nil || h.ref.ID() != node {
		return nil, unix.EBADF
	}
	h.users++
	return h, nil
}

func (h *handle) release() {
	h.all.mu.Lock()
	h.users--
	last := h.dead && h.users == 0
	h.all.mu.Unlock()
	if last {
		h.close()
	}
}

// second counts a second descriptor, if there is room for one.
func (hs *handles) second() bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if len(hs.open)+hs.plain >= hs.max {
		return false
	}
	hs.plain++
	return true
}

// drop ends the handles that match.
func (hs *handles) drop(match func(*handle) bool) {
	hs.mu.Lock()
	var idle []*handle
	for id, h := range hs.open {
		if !match(h) {
			continue
		}
		delete(hs.open, id)
		h.dead = true
		if h.users == 0 {
			idle = append(idle, h)
		}
	}
	hs.mu.Unlock()
	for _, h := range idle {
		h.close()
	}
}

// end ends the handle of that id, if it is one of the node's.
func (hs *handles) end(id, node uint64) {
	hs.mu.Lock()
	h := hs.open[id]
	if h == nil || h.ref.ID() != node {
		hs.mu.Unlock()
		return
	}
	delete(hs.open, id)
	h.dead = true
	last := h.users == 0
	hs.mu.Unlock()
	if last {
		h.close()
	}
}

// close is called once, when nobody uses the handle.
func (h *handle) close() {
	_ = unix.Close(h.fd)
	if h.plain >= 0 {
		_ = unix.Close(h.plain)
		h.all.mu.Lock()
		h.all.plain--
		h.all.mu.Unlock()
	}
	h.ref.Closed()
	h.ref.Release()
}
