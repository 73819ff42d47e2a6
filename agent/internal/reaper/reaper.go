// Package reaper starts and reaps the processes of a PID 1: its own children, and orphans that became its children. No
// other code in the program may wait for a child.
package reaper

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reaper tracks the children. Its methods are safe for concurrent use.
type Reaper struct {
	mu       sync.Mutex
	children map[int]*Child
	adopting int                     // pending calls of Adopting
	strays   map[int]unix.WaitStatus // children that ended while adopting
}

// New returns a reaper. The caller must call Run.
func New() *Reaper {
	return &Reaper{children: map[int]*Child{}, strays: map[int]unix.WaitStatus{}}
}

// Child is a tracked process.
type Child struct {
	pid    int
	r      *Reaper
	onExit func()
	done   chan struct{}
	status unix.WaitStatus
}

// PID returns the process's id. The kernel may reuse it once Done is closed.
func (c *Child) PID() int { return c.pid }

// Done returns a channel that is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Status returns how the process ended; it is valid after Done.
func (c *Child) Status() unix.WaitStatus { return c.status }

// Signal sends a signal, never to another process with a reused id. It returns ESRCH if the process has ended.
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

// Open returns a descriptor of the process, a pidfd. It returns ESRCH if the process has ended. The caller closes the
// file.
func (c *Child) Open() (*os.File, error) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	select {
	case <-c.done:
		return nil, syscall.ESRCH
	default:
	}
	fd, err := unix.PidfdOpen(c.pid, 0)
	if err != nil {
		return nil, fmt.Errorf("pidfd_open: %w", err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// Start runs a program with the descriptors and environment of attr.
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

// Adopting keeps the exit statuses of unknown processes until release is called. In between, another program starts a
// process that becomes a child of this one, and the caller calls Adopt with its id.
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

// Adopt tracks a process that is or will be a child; see Adopting. A process that is gone without having been a child
// counts as ended with status 255. onExit, which may be nil, runs before Done is closed and must not call the reaper.
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

// Run reaps forever. It waits for SIGCHLD instead of waitid: a blocking system call occupies one of the runtime's
// processors for milliseconds, and an emulated guest has only one.
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

// ended records a child's end; the caller holds mu.
func (r *Reaper) ended(c *Child, status unix.WaitStatus) {
	delete(r.children, c.pid)
	c.status = status
	if c.onExit != nil {
		c.onExit()
	}
	close(c.done)
}
