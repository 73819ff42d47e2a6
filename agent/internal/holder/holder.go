// Package holder keeps a pod's process namespace in existence while no container of the pod runs.
package holder

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/reaper"
)

// Name is the name of the process that holds the pod's process namespace. It is the namespace's first process, so
// that the end of one container does not end the others.
const Name = "bulkhead-holder"

// root is an empty directory.
const root = "/run/bulkhead/empty"

// readyFD is the pipe on which the holder reports that it is ready.
const readyFD = 3

// nobody is the holder's user and group.
const nobody = 65535

// Run runs the holder: it adopts and reaps the namespace's orphans. It returns only with an error. The holder has no
// root directory, no files and no rights.
func Run() error {
	if err := unix.Chroot(root); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("chdir: %w", err)
	}
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := syscall.Setgid(nobody); err != nil {
		return fmt.Errorf("setgid: %w", err)
	}
	if err := syscall.Setuid(nobody); err != nil {
		return fmt.Errorf("setuid: %w", err)
	}
	// Signals from a container to process 1 must not end the namespace. While SIGCHLD is ignored, the kernel reaps the
	// children. Ignore signals only now, because the setuid calls above use a signal to reach all threads.
	ignoreSignals()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl: %w", err)
	}
	// The agent waits for this, so no container starts before.
	if err := unix.Close(readyFD); err != nil {
		return fmt.Errorf("report that it is ready: %w", err)
	}
	for { // reap children that ended before SIGCHLD was ignored
		if pid, err := unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL, nil); err != nil || pid <= 0 {
			break
		}
	}
	for {
		_ = unix.Pause()
	}
}

// ignoreSignals makes the kernel drop every signal that can be ignored.
func ignoreSignals() {
	ignore := struct{ handler, flags, restorer, mask uint64 }{handler: 1} // SIG_IGN
	for sig := uintptr(1); sig <= 64; sig++ {
		// KILL and STOP cannot be ignored, and do not reach the first process from within.
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&ignore)), 0, 8, 0, 0)
	}
}

// Holder is the holder of one namespace. It is safe for concurrent use.
type Holder struct {
	reaper *reaper.Reaper

	mu    sync.Mutex    // guards the following
	child *reaper.Child // nil until needed
}

// New returns a holder that starts at the first use of its namespace.
func New(r *reaper.Reaper) *Holder { return &Holder{reaper: r} }

// Namespace opens the process namespace. The first call creates it.
func (h *Holder) Namespace() (*os.File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.child != nil {
		select {
		case <-h.child.Done(): // its namespace has ended too
			h.child = nil
		default:
		}
	}
	if h.child == nil {
		child, err := h.start()
		if err != nil {
			return nil, fmt.Errorf("hold the pod's process namespace: %w", err)
		}
		h.child = child
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/pid", h.child.PID()))
	if err != nil {
		return nil, fmt.Errorf("the pod's process namespace: %w", err)
	}
	return f, nil
}

// readyWait bounds the start of the holder. It is long because a VM is slow when many run under emulation.
const readyWait = 2 * time.Minute

// start starts the holder and returns when it has dropped all its rights.
func (h *Holder) start() (*reaper.Child, error) {
	if err := os.MkdirAll(root, 0o711); err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	ready, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	child, err := h.reaper.Start("/proc/self/exe", []string{Name}, &syscall.ProcAttr{
		Dir: "/", Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), theirs.Fd()},
		Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Setsid: true},
	})
	theirs.Close()
	if err != nil {
		return nil, err
	}
	if err := ready.SetReadDeadline(time.Now().Add(readyWait)); err != nil {
		return nil, err
	}
	// The holder closes its end when it is ready or ends.
	_, err = ready.Read(make([]byte, 1))
	select {
	case <-child.Done():
		err = fmt.Errorf("the holder ended with status %#x", int(child.Status()))
	default:
		if errors.Is(err, io.EOF) {
			return child, nil
		}
	}
	_ = child.Signal(unix.SIGKILL) // it may have ended
	return nil, err
}
