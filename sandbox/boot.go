package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/fault"
)

// boot is one start of a VM in the background.
type boot struct {
	cancel context.CancelFunc
	done   chan struct{}
	vm     *liveVM // set, as err, before done is closed; can be set although err is
	err    error
}

// boot starts a VM; the caller holds mu.
func (s *Sandbox) boot() *boot {
	b := &boot{done: make(chan struct{})}
	var ctx context.Context
	limit := s.o.bootLimit()
	late := fmt.Errorf("%w: the VM was not up within %v", context.DeadlineExceeded, limit)
	ctx, b.cancel = context.WithTimeoutCause(s.work.Context(), limit, late)
	s.state.Phases = nil
	s.booting = b
	if s.first == nil {
		s.first = b
	}
	s.work.Go(func() {
		defer b.cancel()
		defer close(b.done)
		b.vm, b.err = s.bringUp(ctx)
	})
	return b
}

// bringUp starts a VM and connects to its agent. A VM that it returns, also with an error, belongs to the sandbox and
// is watched.
func (s *Sandbox) bringUp(ctx context.Context) (*liveVM, error) {
	var vm hypervisor.VM
	err := s.phase("machine", func() (err error) {
		vm, err = s.o.StartVM(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("start the VM: %w", causeOf(ctx, err))
	}
	fault.Point("machine.up")
	m := s.newVM(vm, false)
	s.mu.Lock()
	s.adopt(m)
	err = s.save()
	s.mu.Unlock()
	fault.Point("machine.recorded")
	if err == nil {
		err = s.phase("channel", func() error {
			_, err := m.Link.Connect(ctx)
			return err
		})
	}
	if err != nil {
		return m, m.VM.Explain("reach the agent", causeOf(ctx, err))
	}
	return m, nil
}

// causeOf adds the reason why the context ended to an error that follows from it.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	return err
}

// adopt makes m the sandbox's VM; the caller holds mu.
func (s *Sandbox) adopt(m *liveVM) {
	record := m.VM.Record()
	s.vm, s.state.VM = m, &record
	s.devices.Begin(m, record.VM.Memory)
	s.work.Go(func() { s.watch(m) })
	s.work.Go(func() {
		m.KeepClock(func() { s.logIf("correct the guest's clock", s.correctClock(m)) })
	})
}

// phase runs f and records how long it took.
func (s *Sandbox) phase(name string, f func() error) error {
	began := time.Now()
	err := f()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Phases = append(s.state.Phases, Phase{Name: name, Microseconds: time.Since(began).Microseconds()})
	return err
}

// WaitBooted returns when the VM is up and its agent has answered, or with the error of the start.
func (s *Sandbox) WaitBooted(ctx context.Context) error {
	s.mu.Lock()
	b := s.booting
	s.mu.Unlock()
	if b == nil {
		return fmt.Errorf("wait for the VM of %s: %w", s.subject(), ErrVMGone)
	}
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return fmt.Errorf("wait for the VM of %s: %w", s.subject(), context.Cause(ctx))
	}
}
