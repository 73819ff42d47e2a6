// Package locks keeps a guest's file locks on the host, where other guests and the host's own programs see them.
//
// The owner of a POSIX lock is a process of the guest. Each owner has a descriptor of its own for each file, which owns
// its locks (F_OFD_SETLK). A waiter tries again when a lock is released here, and periodically, since the host's kernel
// does not report other releases. A waiter holds no thread, and can be interrupted. Deadlocks of POSIX locks are not
// detected (EDEADLK).
package locks

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/broadcast"
)

// Limits bounds a guest's locks.
type Limits struct {
	// Descriptors is the most owners of locks, counted per file.
	Descriptors int
	// Waiters is the most requests that may wait.
	Waiters int
}

// Locks are the locks of one guest. It is safe for concurrent use.
type Locks struct {
	limits Limits
	stop   <-chan struct{}
	freed  broadcast.Broadcast

	mu      sync.Mutex
	waiters int
	files   map[uint64]map[uint64]*owned // by node and owner
	open    int
	closed  bool
}

// owned is an owner's descriptor of one file.
type owned struct {
	fd     int
	handle uint64 // of the last request for a lock
	users  int
	dead   bool
}

// New returns Locks without locks. When stop is closed, waiters return EIO.
func New(limits Limits, stop <-chan struct{}) *Locks {
	return &Locks{limits: limits, stop: stop, files: map[uint64]map[uint64]*owned{}}
}

// Owner is the owner of a request's POSIX locks.
type Owner struct {
	// Node is the file.
	Node uint64
	// ID is the guest's number of the owning process.
	ID uint64
	// Handle is the handle of the request.
	Handle uint64
	// Open opens the file.
	Open func() (int, error)
}

// Wait says how long to wait for a lock.
type Wait struct {
	// Blocks waits until the lock is granted, or Cancel is closed (EINTR).
	Blocks bool
	Cancel <-chan struct{}
}

// Get replaces l by a lock that conflicts with it, or by one of type F_UNLCK.
func (ls *Locks) Get(o Owner, l *unix.Flock_t) error {
	f, err := ls.hold(o)
	if err != nil {
		return err
	}
	defer ls.release(f)
	return unix.FcntlFlock(uintptr(f.fd), unix.F_OFD_GETLK, l)
}

// Set locks or unlocks a range.
func (ls *Locks) Set(o Owner, l unix.Flock_t, w Wait) error {
	if l.Type == unix.F_UNLCK && !ls.has(o) {
		return nil
	}
	f, err := ls.hold(o)
	if err != nil {
		return err
	}
	defer ls.release(f)
	return ls.try(w, l.Type == unix.F_UNLCK, func() error {
		now := l
		return unix.FcntlFlock(uintptr(f.fd), unix.F_OFD_SETLK, &now)
	})
}

// Flock sets a lock of flock(2) on an open file: typ is F_RDLCK, F_WRLCK or F_UNLCK.
func (ls *Locks) Flock(fd, typ int, w Wait) error {
	how := map[int]int{unix.F_RDLCK: unix.LOCK_SH, unix.F_WRLCK: unix.LOCK_EX, unix.F_UNLCK: unix.LOCK_UN}[typ]
	if how == 0 {
		return unix.EINVAL
	}
	return ls.try(w, typ == unix.F_UNLCK, func() error { return unix.Flock(fd, how|unix.LOCK_NB) })
}

const (
	// soonest and latest are the pauses between tries for a lock that other programs may hold.
	soonest = time.Millisecond
	latest  = 50 * time.Millisecond
)

// try locks until it succeeds, fails for another reason than a conflict, or must not wait.
func (ls *Locks) try(w Wait, unlock bool, lock func() error) error {
	if unlock {
		defer ls.freed.Notify()
	}
	pause := soonest
	for first := true; ; first = false {
		freed := ls.freed.Next()
		err := lock()
		if err == unix.EACCES { //nolint:errorlint // fcntl(2) returns either
			err = unix.EAGAIN
		}
		if err != unix.EAGAIN || !w.Blocks { //nolint:errorlint // the kernel's own number
			return err
		}
		if first {
			if !ls.addWaiter() {
				return unix.ENOLCK
			}
			defer ls.removeWaiter()
		}
		timer := time.NewTimer(pause)
		select {
		case <-freed:
			pause = soonest
		case <-timer.C:
			pause = min(2*pause, latest)
		case <-w.Cancel:
			err = unix.EINTR
		case <-ls.stop:
			err = unix.EIO
		}
		timer.Stop()
		select {
		case <-ls.stop: // also if a lock was released at the end
			err = unix.EIO
		default:
		}
		if err != unix.EAGAIN { //nolint:errorlint // set above
			return err
		}
	}
}

func (ls *Locks) addWaiter() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.waiters >= ls.limits.Waiters {
		return false
	}
	ls.waiters++
	return true
}

func (ls *Locks) removeWaiter() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.waiters--
}
