package locks

import (
	"golang.org/x/sys/unix"
)

// has reports whether the owner may have locks.
func (ls *Locks) has(o Owner) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.files[o.Node][o.ID] != nil
}

// hold returns the owner's descriptor, in use until it is released.
func (ls *Locks) hold(o Owner) (*owned, error) {
	fd := -1
	if !ls.has(o) {
		// Opening may take long on a network file system.
		var err error
		if fd, err = o.Open(); err != nil {
			return nil, err
		}
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	f := ls.files[o.Node][o.ID]
	switch {
	case ls.closed:
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return nil, unix.EIO
	case f != nil && fd >= 0:
		_ = unix.Close(fd) // another request opened it first
	case f == nil && fd < 0:
		return nil, unix.EINTR // a close has ended its locks meanwhile: the guest asks again
	case f == nil && ls.open >= ls.limits.Descriptors:
		_ = unix.Close(fd)
		return nil, unix.ENOLCK
	case f == nil:
		f = ls.add(o, fd)
	}
	f.handle = o.Handle
	f.users++
	return f, nil
}

func (ls *Locks) add(o Owner, fd int) *owned {
	f := &owned{fd: fd}
	ls.open++
	if ls.files[o.Node] == nil {
		ls.files[o.Node] = map[uint64]*owned{}
	}
	ls.files[o.Node][o.ID] = f
	return f
}

func (ls *Locks) release(f *owned) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	f.users--
	ls.closeIfDead(f)
}

// closeIfDead closes a descriptor that is dead and not in use, which releases its locks.
func (ls *Locks) closeIfDead(f *owned) {
	if f.dead && f.users == 0 && f.fd >= 0 {
		_ = unix.Close(f.fd)
		f.fd = -1
		ls.open--
		ls.freed.Notify()
	}
}

// Drop releases the owner's locks on a file.
func (ls *Locks) Drop(node, owner uint64) {
	ls.drop(node, func(id uint64, _ *owned) bool { return id == owner })
}

// Closed releases the locks that were requested with a closed handle: F_OFD_SETLK locks in the guest end with it. The
// locks of its processes have ended before.
func (ls *Locks) Closed(node, handle uint64) {
	ls.drop(node, func(_ uint64, f *owned) bool { return f.handle == handle })
	ls.freed.Notify() // its flock(2) has ended with it
}

// Close releases all locks, and grants none any more.
func (ls *Locks) Close() {
	ls.mu.Lock()
	ls.closed = true
	nodes := make([]uint64, 0, len(ls.files))
	for node := range ls.files {
		nodes = append(nodes, node)
	}
	ls.mu.Unlock()
	for _, node := range nodes {
		ls.drop(node, func(uint64, *owned) bool { return true })
	}
}

func (ls *Locks) drop(node uint64, match func(owner uint64, f *owned) bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for id, f := range ls.files[node] {
		if match(id, f) {
			delete(ls.files[node], id)
			f.dead = true
			ls.closeIfDead(f)
		}
	}
	if len(ls.files[node]) == 0 {
		delete(ls.files, node)
	}
}
