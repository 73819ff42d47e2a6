package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu/qmp"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// watchProcess closes done when the process has ended. It waits on a pidfd in the runtime's poller: no thread blocks,
// whether or not the process is a child.
func (v *vm) watchProcess() error {
	pidfd, err := v.record.Process.Open()
	if errors.Is(err, procid.ErrGone) {
		v.ended()
		return nil
	}
	if err != nil {
		return err
	}
	raw, err := pidfd.SyscallConn()
	if err != nil {
		pidfd.Close()
		return err
	}
	go func() {
		defer pidfd.Close()
		err := raw.Read(readable)
		if err == nil || v.child != nil {
			v.ended()
		}
	}()
	if v.child == nil {
		v.closing = func() { pidfd.SetReadDeadline(time.Unix(1, 0)) }
	}
	return nil
}

// readable checks without waiting; the runtime's poller waits in between.
func readable(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
}

func (v *vm) ended() {
	if v.child != nil {
		v.child.Wait()
		v.mu.Lock()
		v.status = v.child.ProcessState
		v.mu.Unlock()
	}
	close(v.done)
}

// watchEvents stores the reason of the guest's shutdown.
func (v *vm) watchEvents() {
	sub := v.qmp.Subscribe("SHUTDOWN")
	v.events.Go(func() {
		defer sub.Cancel()
		for {
			e, err := sub.Next(context.Background())
			if err != nil {
				return
			}
			var data struct {
				Reason string `json:"reason"`
			}
			if json.Unmarshal(e.Data, &data) == nil {
				v.mu.Lock()
				v.shutdown = data.Reason
				v.mu.Unlock()
			}
		}
	})
}

// Exit implements hypervisor.VM.
func (v *vm) Exit() error {
	select {
	case <-v.done:
	default:
		return nil
	}
	// The last event and the last line of the console may still be on their way.
	if v.qmp != nil {
		<-v.qmp.Done()
		v.events.Wait()
	}
	v.console.drained(drainTimeout)
	if cause := v.cause(); cause != nil {
		return v.failed("end", "run the VM", cause)
	}
	return nil
}

// cause returns why the VM has ended, nil if the guest shut itself down.
func (v *vm) cause() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.shutdown == "guest-shutdown":
		return nil
	case v.shutdown == "guest-reset":
		return errors.New("the guest's kernel died or rebooted")
	case v.shutdown != "":
		return fmt.Errorf("ended by %s", v.shutdown)
	case v.status != nil:
		return fmt.Errorf("QEMU ended: %s", v.status)
	}
	return errors.New("QEMU ended")
}

// Explain implements hypervisor.VM.
func (v *vm) Explain(op string, err error) error {
	if cut(err) {
		v.awaitDeath()
	}
	select {
	case <-v.done:
		cause := v.Exit()
		var e *hypervisor.Error
		if errors.As(cause, &e) {
			err = fmt.Errorf("%w: %w (%w)", hypervisor.ErrGone, e.Err, err)
		} else {
			err = fmt.Errorf("%w: the guest shut itself down (%w)", hypervisor.ErrGone, err)
		}
	default:
	}
	return v.failed("run", op, err)
}

// deathOr returns the cause of the process's death, if it has died, in place of the broken connection that it shows as.
func (v *vm) deathOr(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if cut(err) {
		v.awaitDeath()
	}
	select {
	case <-v.done:
		if cause := v.cause(); cause != nil {
			return fmt.Errorf("%w: %w", hypervisor.ErrGone, cause)
		}
		return hypervisor.ErrGone
	default:
		return err
	}
}

// deathDelay bounds the wait for a process that has cut a connection. lastDelay bounds the wait for a process that is
// known to be dying: its sockets close before its memory is freed, which takes seconds on a busy host.
const (
	deathDelay = time.Second
	lastDelay  = 30 * time.Second
)

func (v *vm) awaitDeath() {
	for limit := time.Now().Add(lastDelay); time.Now().Before(limit); {
		select {
		case <-v.done:
			return
		case <-time.After(deathDelay):
		}
		if p := v.record.Process; p.Alive() && !p.Dying() {
			return
		}
	}
}

// cut reports whether err means that the other side has closed or reset the connection.
func cut(err error) bool {
	for _, end := range []error{qmp.ErrClosed, io.EOF, io.ErrUnexpectedEOF, unix.ECONNRESET, unix.ECONNREFUSED, unix.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// failed returns the error of an operation, with the end of the VM's stderr and console.
func (v *vm) failed(phase, op string, err error) error {
	return &hypervisor.Error{
		Phase: phase, Op: op, Err: err,
		Stderr:  readStderr(v.stderr),
		Console: hypervisor.Printable(v.console.tail(tailSize)),
	}
}

// tailSize is the length of the end of stderr and of the console in an error, in bytes.
const tailSize = 2 << 10
