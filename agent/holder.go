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

// HolderName is the name of the process that holds the process namespace of a
// pod: its first, so that no container's end is the end of the others.
const HolderName = "bulkhead-holder"

// holderRoot has nothing in it.
const holderRoot = "/run/bulkhead/empty"

// holderReady is the holder's end of the pipe that it says so with.
const holderReady = 3

// nobody is the holder's user and group.
const nobody = 65535

// Hold is the whole life of a holder: what loses its parent in the namespace
// becomes its child, and is reaped. It returns only with an error. Who looks at
// it finds no root directory, no file and no right.
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
	// What a container sends to process 1 must not end the namespace; and of
	// who ignores SIGCHLD the kernel itself reaps the children. Not sooner: by
	// a signal the threads have become nobody.
	ignoreSignals()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hold a process namespace: prctl: %w", err)
	}
	// The agent waits for this: no container meets it before.
	if err := unix.Close(holderReady); err != nil {
		return fmt.Errorf("hold a process namespace: report that it is ready: %w", err)
	}
	for { // those that ended before SIGCHLD was ignored
		if pid, err := unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL, nil); err != nil || pid <= 0 {
			break
		}
	}
	for {
		_ = unix.Pause()
	}
}

// ignoreSignals has the kernel drop every signal that can be ignored.
func ignoreSignals() {
	ignore := struct{ handler, flags, restorer, mask uint64 }{handler: 1} // SIG_IGN
	for sig := uintptr(1); sig <= 64; sig++ {
		// KILL and STOP cannot be, and do not reach the first process from within.
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&ignore)), 0, 8, 0, 0)
	}
}

// podNamespace opens the process namespace that the pod's containers share. It
// is made when it is first asked for.
func (a *Agent) podNamespace() (*os.File, error) {
	a.holding.Lock()
	defer a.holding.Unlock()
	if a.holder != nil {
		select {
		case <-a.holder.Done(): // and all that was in its namespace
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

// startHolder returns when the holder has given up all that it has.
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
	// It closes its end, in its time or by its end.
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
