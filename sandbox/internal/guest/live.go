package guest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/hostoom"
)

// Errors of calls to the agent, matched with errors.Is.
var (
	ErrVMGone    = errdefs.ErrUnavailable.WithMessage("the VM is gone")        // the VM's end interrupted the call
	ErrVMStopped = errdefs.ErrUnavailable.WithMessage("the VM is not running") // its process is stopped (SIGSTOP)
)

// Reasons of a VM's unrequested end.
const (
	ReasonOOMKilled = "OOMKilled"
	ReasonVMKilled  = "VMKilled"
)

// Live is a running VM with the connection to its agent. NewLive creates it. Its methods are safe for concurrent use.
type Live struct {
	VM    hypervisor.VM
	Link  *Link
	Agent *agentv1.Client
	OOM   hostoom.Count
	// Gone is closed by the sandbox when it has handled the VM's end.
	Gone chan struct{}

	ctx    context.Context // ends with the VM
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	why, msg string // set if we kill the VM
}

// NewLive returns the VM, which ends at the latest with ctx. NewLink explains the other parameters.
func NewLive(ctx context.Context, vm hypervisor.VM, resume bool, patience time.Duration, broken func(*Live, error)) *Live {
	m := &Live{VM: vm, Gone: make(chan struct{}), OOM: hostoom.Read(vm.Process().PID)}
	m.ctx, m.cancel = context.WithCancelCause(ctx)
	m.Link = NewLink(vm.Connect, resume, patience, func(err error) { broken(m, err) })
	m.Agent = agentv1.NewClient(m.Link.Open)
	return m
}

// Context ends with the VM, when End is called.
func (m *Live) Context() context.Context { return m.ctx }

// End ends all calls with ErrVMGone.
func (m *Live) End() { m.cancel(ErrVMGone) }

// Detach closes the handles of a VM and leaves it running.
func (m *Live) Detach() error {
	m.End()
	return errors.Join(m.Link.Close(), m.VM.Close())
}

// Call bounds a call to the agent by the VM's life and a time. It cancels the call early if the VM's process is
// stopped.
func (m *Live) Call(ctx context.Context, limit time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(m.ctx, func() { end(context.Cause(m.ctx)) })
	m.checkStopped(ctx, end)
	return ctx, func() { stop(); end(nil); cancel() }
}

// stopPatience is the interval of checks of the VM's process during an unanswered call.
const stopPatience = time.Second

// checkStopped cancels an unanswered call if the VM's process has received SIGSTOP.
func (m *Live) checkStopped(ctx context.Context, end context.CancelCauseFunc) {
	look := time.AfterFunc(stopPatience, func() {
		if p := m.VM.Process(); p.Stopped() {
			end(fmt.Errorf("%w: process %d was stopped by a signal or a debugger", ErrVMStopped, p.PID))
		} else if ctx.Err() == nil {
			m.checkStopped(ctx, end)
		}
	})
	context.AfterFunc(ctx, func() { look.Stop() })
}

// endGrace bounds the delay between the end of the channel and the notice of the VM's end.
const endGrace = 500 * time.Millisecond

// Fault converts the error of a call to the agent. An error caused by the VM's end matches ErrVMGone.
func (m *Live) Fault(err error) error {
	var refusal *agentv1.Error
	if err == nil || errors.As(err, &refusal) || errors.Is(err, ErrVMGone) || errors.Is(err, ErrVMStopped) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	late := time.NewTimer(endGrace)
	defer late.Stop()
	select {
	case <-m.VM.Done():
		return fmt.Errorf("%w: %w", ErrVMGone, err)
	case <-late.C:
		return err
	}
}

// SetReason sets the reason of the VM's end before the VM is killed. Only the first call counts.
func (m *Live) SetReason(why, message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.why == "" {
		m.why, m.msg = why, message
	}
}

// Reason returns why the VM has ended, as a reason and as a message for users.
func (m *Live) Reason() (reason, message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.why != "":
		return m.why, m.msg
	case m.OOM.Happened():
		return ReasonOOMKilled, "the host ran out of memory and killed the VM"
	case m.VM.Exit() != nil:
		return ReasonVMKilled, m.VM.Exit().Error()
	}
	return ReasonVMKilled, "the guest shut itself down"
}

// Introduce configures the guest, with its own entropy and machine id.
func (m *Live) Introduce(ctx context.Context, c agentv1.Configure) (agentv1.Configured, error) {
	var secret [80]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return agentv1.Configured{}, err
	}
	c.Entropy, c.Time, c.MachineID = secret[:64], time.Now().UTC(), hex.EncodeToString(secret[64:])
	return m.Agent.Configure(ctx, c)
}
