// Package reaper starts and reaps the processes of a PID 1: its own children,
// and all that lost their parents and became its children. Nothing else in the
// program may wait for a child.
package reaper

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reaper keeps the children. Its methods may be called at once.
type Reaper struct {
	mu       sync.Mutex
	children map[int]*Child
	adopting int                     // calls under way whose process's id is not known yet
	strays   map[int]unix.WaitStatus // children that ended while adopting
}

// New makes a reaper, whose Run must be called.
func New() *Reaper {
	return &Reaper{children: map[int]*Child{}, strays: map[int]unix.WaitStatus{}}
}

// Child is a process that is waited for.
type Child struct {
	pid    int
	r      *Reaper
	onExit func()
	done   chan struct{}
	status unix.WaitStatus
}

// PID is the process's id, which may be another's once Done is closed.
func (c *Child) PID() int { return c.pid }

// Done is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Status is how the process ended, after Done.
func (c *Child) Status() unix.WaitStatus { return c.status }

// Signal sends a signal; it never reaches another process that has come to the
// same id. It returns ESRCH when the process has ended.
func (c *Child) Signal(sig syscall.Signal) error {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	select {
	case <-c.done:
		return syscall.ESRCH
	default:
		return unix.Kill(c.pid, sig)
	}
}

// Start runs a program whose descriptors and environment are attr's.
func (r *Reaper) Start(path string, argv []string, attr *syscall.ProcAttr) (*Child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	return r.add(pid, nil), nil
}

func (r *Reaper) add(pid int, onExit func()) *Child {
	c := &Child{pid: pid, r: r, onExit: onExit, done: make(chan struct{})}
	r.children[pid] = c
	return c
}

// Adopting keeps the exit statuses of unknown processes from now on until
// release is called: between the two, somebody else starts a process that will
// become ours, tells its id, and Adopt is called with it.
func (r *Reaper) Adopting() (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.adopting++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.adopting--; r.adopting == 0 {
			clear(r.strays)
		}
	}
}

// Adopt waits for a process that is or will be a child; see Adopting. One that
// is gone without having been a child has ended with status 255. onExit, which
// may be nil, runs before Done is closed and must not call the reaper.
func (r *Reaper) Adopt(pid int, onExit func()) *Child {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.add(pid, onExit)
	if status, ok := r.strays[pid]; ok {
		delete(r.strays, pid)
		r.ended(c, status)
	} else if unix.Kill(pid, 0) == unix.ESRCH {
		r.ended(c, 255<<8)
	}
	return c
}

// Run reaps for ever. It waits for the kernel's signal and not in waitid: a system call that
// blocks keeps one of the runtime's processors for milliseconds, of which an emulated guest
// has one.
func (r *Reaper) Run() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	for {
		r.reap()
		<-ended
	}
}

func (r *Reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WALL, nil)
		if err != nil || pid <= 0 {
			return
		}
		if c := r.children[pid]; c != nil {
			r.ended(c, status)
		} else if r.adopting > 0 {
			r.strays[pid] = status
		}
	}
}

// ended needs the lock.
func (r *Reaper) ended(c *Child, status unix.WaitStatus) {
	delete(r.children, c.pid)
	c.status = status
	if c.onExit != nil {
		c.onExit()
	}
	close(c.done)
}
