package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/reaper"
)

// HolderName is the name of the process that holds the pod's process namespace. It is the namespace's first process, so
// that the end of one container does not end the others.
const HolderName = "bulkhead-holder"

// holderRoot is an empty directory.
const holderRoot = "/run/bulkhead/empty"

// holderReady is the pipe on which the holder reports that it is ready.
const holderReady = 3

// nobody is the holder's user and group.
const nobody = 65535

// Hold runs the holder: it adopts and reaps the namespace's orphans. It returns only with an error. The holder has no
// root directory, no files and no rights.
func Hold() error {
	if err := unix.Chroot(holderRoot); err != nil {
		return fmt.Errorf("hold a process namespace: chroot: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("hold a process namespace: chdir: %w", err)
	}
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("hold a process namespace: setgroups: %w", err)
	}
	if err := syscall.Setgid(nobody); err != nil {
		return fmt.Errorf("hold a process namespace: setgid: %w", err)
	}
	if err := syscall.Setuid(nobody); err != nil {
		return fmt.Errorf("hold a process namespace: setuid: %w", err)
	}
	// Signals from a container to process 1 must not end the namespace. While SIGCHLD is ignored, the kernel reaps the
	// children. Ignore signals only now, because the setuid calls above use a signal to reach all threads.
	ignoreSignals()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hold a process namespace: prctl: %w", err)
	}
	// The agent waits for this, so no container starts before.
	if err := unix.Close(holderReady); err != nil {
		return fmt.Errorf("hold a process namespace: report that it is ready: %w", err)
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

// podNamespace opens the process namespace that the pod's containers share. The first call creates it.
func (a *Agent) podNamespace() (*os.File, error) {
	a.holding.Lock()
	defer a.holding.Unlock()
	if a.holder != nil {
		select {
		case <-a.holder.Done(): // its namespace has ended too
			a.holder = nil
		default:
		}
	}
	if a.holder == nil {
		holder, err := a.startHolder()
		if err != nil {
			return nil, fmt.Errorf("hold the pod's process namespace: %w", err)
		}
		a.holder = holder
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/pid", a.holder.PID()))
	if err != nil {
		return nil, fmt.Errorf("the pod's process namespace: %w", err)
	}
	return f, nil
}

// startHolder starts the holder and returns when it has dropped all its rights.
func (a *Agent) startHolder() (*reaper.Child, error) {
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
	holder, err := a.reaper.Start("/proc/self/exe", []string{HolderName}, &syscall.ProcAttr{
		Dir: "/", Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), theirs.Fd()},
		Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Setsid: true},
	})
	theirs.Close()
	if err != nil {
		return nil, err
	}
	if err := ready.SetReadDeadline(time.Now().Add(opTimeout)); err != nil {
		return nil, err
	}
	// The holder closes its end when it is ready or ends.
	_, err = ready.Read(make([]byte, 1))
	select {
	case <-holder.Done():
		err = fmt.Errorf("the holder ended with status %#x", int(holder.Status()))
	default:
		if errors.Is(err, io.EOF) {
			return holder, nil
		}
	}
	_ = holder.Signal(unix.SIGKILL) // it may have ended
	return nil, err
}
