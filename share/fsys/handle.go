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

	// all.mu guards users and dead. The descriptor is closed when it is dead and has no users.
	users int
	dead  bool

	// plain is a descriptor for writes at an offset, if the handle appends; -1 until it is needed.
	mu    sync.Mutex
	plain int

	dir position
}

// handles are the handles of a file system.
type handles struct {
	max int

	mu    sync.Mutex
	next  uint64
	open  map[uint64]*handle
	plain int // handles that have a second descriptor
}

// add creates a handle of fd and r. It owns both, even if it fails.
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

// hold returns the handle with that id, in use until it is released. It returns EBADF if the node has no such handle.
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

// second counts a second descriptor, if there is space for one.
func (hs *handles) second() bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if len(hs.open)+hs.plain >= hs.max {
		return false
	}
	hs.plain++
	return true
}

// atOffset returns a descriptor for writes at an offset, of a handle that appends. Pages of a mapping need it.
func (h *handle) atOffset(by host) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.plain >= 0 {
		return h.plain, nil
	}
	if !h.all.second() {
		return -1, unix.ENFILE
	}
	fd, err := by.reopen(h.fd, h.flags&^(unix.O_APPEND|unix.O_TRUNC))
	if err != nil {
		h.all.mu.Lock()
		h.all.plain--
		h.all.mu.Unlock()
		return -1, err
	}
	h.plain = fd
	return h.plain, nil
}

// drop closes the handles that match, when they are not in use.
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

// remove closes the handle with that id, when it is not in use, if the node has it.
func (hs *handles) remove(id, node uint64) {
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

// close is called once, when the handle is not in use.
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
