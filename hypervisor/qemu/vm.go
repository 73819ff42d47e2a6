package qemu

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu/qmp"
	"github.com/bulkhead-project/bulkhead/internal/podsock"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// vm is one QEMU process, started here or adopted.
type vm struct {
	record  hypervisor.Record
	stderr  *os.File
	console *console
	qmp     *qmp.Client
	timings []hypervisor.Timing

	child   *exec.Cmd // nil when adopted
	closing func()    // stops the goroutine that waits for the process
	events  sync.WaitGroup

	limited bool // to the connections in channels

	disks sync.Mutex // orders changes of the slots
	grow  sync.Mutex // orders changes of the memory

	mu       sync.Mutex
	channels []net.Conn // not handed out yet
	shutdown string     // reason of the SHUTDOWN event, once seen
	status   *os.ProcessState
	done     chan struct{}
	closed   sync.Once
}

func (v *vm) Process() procid.ID           { return v.record.Process }
func (v *vm) Record() hypervisor.Record    { return v.record }
func (v *vm) Timings() []hypervisor.Timing { return v.timings }
func (v *vm) Done() <-chan struct{}        { return v.done }

// Pause implements hypervisor.VM.
func (v *vm) Pause(ctx context.Context) error {
	return v.command(ctx, "pause the VM", "stop", nil, nil)
}

// Resume implements hypervisor.VM.
func (v *vm) Resume(ctx context.Context) error {
	return v.command(ctx, "resume the VM", "cont", nil, nil)
}

// command runs one QMP command and adds the VM's output to its error.
func (v *vm) command(ctx context.Context, op, name string, args, result any) error {
	if err := v.qmp.Execute(ctx, name, args, result); err != nil {
		return v.failed("run", op, v.deathOr(err))
	}
	return nil
}

// Kill implements hypervisor.VM.
func (v *vm) Kill(ctx context.Context) error {
	err := v.record.Process.Signal(unix.SIGKILL)
	if err != nil && !errors.Is(err, procid.ErrGone) {
		return v.failed("end", "kill the VM", err)
	}
	if v.child == nil { // also after Close, which ends the wait behind done
		if err := v.record.Process.Wait(ctx); err != nil {
			return v.failed("end", "kill the VM", err)
		}
		return nil
	}
	select {
	case <-v.done:
		return nil
	case <-ctx.Done():
		return v.failed("end", "kill the VM", ctx.Err())
	}
}

// Close implements hypervisor.VM. A process that was started here is still reaped when it ends.
func (v *vm) Close() error {
	v.closed.Do(func() {
		if v.qmp != nil {
			v.qmp.Close()
		}
		v.events.Wait()
		v.console.close()
		v.mu.Lock()
		sockets{channel: v.channels}.close()
		v.channels = nil
		v.mu.Unlock()
		if v.closing != nil {
			v.closing()
		}
		if v.stderr != nil {
			v.stderr.Close()
		}
	})
	return nil
}

// abandon kills a VM after a failed start, and removes its sockets.
func (v *vm) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), abandonTimeout)
	defer cancel()
	_ = v.Kill(ctx)
	v.Close()
	RemoveSockets(v.record.Dir)
}

// RemoveSockets removes the sockets of a VM that has ended, or failed to start, from its directory.
func RemoveSockets(dir string) {
	podsock.Remove(dir, vmSockets...)
}

// abandonTimeout bounds the death of a killed process. A process that takes longer hangs in the kernel.
const abandonTimeout = 10 * time.Second

func (v *vm) timed(phase string, began *time.Time) {
	now := time.Now()
	v.timings = append(v.timings, hypervisor.Timing{Phase: phase, Took: now.Sub(*began)})
	*began = now
}
