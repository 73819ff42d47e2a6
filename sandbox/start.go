package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/disks"
)

// Start moves a Ready or Stopped sandbox to Running: the VM is up, its agent configured, its memory grown and its
// scratch disk mounted. A Stopped sandbox gets a new VM. After an error the VM is gone and the state is Stopped.
func (s *Sandbox) Start(ctx context.Context) error {
	if err := s.acquire(ctx, "start"); err != nil {
		return err
	}
	defer s.release()
	ctx, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	b, err := s.beginStart(interrupt)
	if err != nil {
		return err
	}
	m, err := s.awaitBoot(ctx, b)
	if err == nil {
		err = s.completeStart(m)
	}
	s.mu.Lock()
	s.interrupt = nil
	s.state.Starting = false
	s.mu.Unlock()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("start %s: %w", s.subject(), err)
	// The cleanup must run although the caller's context may have ended.
	return errors.Join(err, s.abandon(context.WithoutCancel(ctx), b, err.Error()))
}

func (s *Sandbox) beginStart(interrupt context.CancelCauseFunc) (*boot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.created || s.deleted {
		return nil, fmt.Errorf("start %s: %w: it has no configuration", s.subject(), errdefs.ErrInvalidArgument)
	}
	if s.work.Context().Err() != nil {
		return nil, fmt.Errorf("start %s: %w", s.subject(), errClosed)
	}
	if err := expect(s.subject(), "start", s.state.State, Ready, Stopped); err != nil {
		return nil, err
	}
	s.state.Starting = true
	if err := s.save(); err != nil {
		s.state.Starting = false
		return nil, fmt.Errorf("start %s: %w", s.subject(), err)
	}
	fault.Point("sandbox.starting")
	b := s.booting
	if s.state.State == Stopped || b == nil {
		b = s.boot()
		s.devices.Slots.Init(s.config.VM)
	}
	s.interrupt = interrupt
	return b, nil
}

// awaitBoot waits for the VM and configures it for the pod.
func (s *Sandbox) awaitBoot(ctx context.Context, b *boot) (*liveVM, error) {
	err := s.phase("await", func() error {
		select {
		case <-b.done:
			return b.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if err != nil {
		return nil, err
	}
	m := b.vm
	grown := make(chan error, 1)
	ctx, done := m.Call(ctx, s.o.BootTimeout)
	defer done()
	go func() { grown <- s.phase("memory", func() error { return s.devices.Grow(ctx, m, s.config.MemoryMiB) }) }()
	if len(s.config.Cards) > 0 {
		err = s.phase("cards", func() error { return s.devices.AddCards(ctx, m) })
	}
	if err == nil {
		err = s.phase("configure", func() error { return s.configure(ctx, m) })
	}
	s.mu.Lock()
	mounted := s.o.Mounted && b == s.first
	s.mu.Unlock()
	if err == nil && !mounted && s.devices.HasScratch() {
		err = s.phase(disks.Scratch, func() error { return s.devices.MountScratch(ctx, m) })
	}
	err = errors.Join(err, <-grown)
	fault.Point("sandbox.configured")
	return m, err
}

func (s *Sandbox) configure(ctx context.Context, m *liveVM) error {
	c := s.config
	guest, err := m.Introduce(ctx, agentv1.Configure{
		Sandbox: c.ID, Hostname: c.Hostname, Resolv: c.Resolv, Hosts: c.Hosts,
		Sysctls: c.Sysctls, Network: c.Network, Cards: c.Cards, Limits: c.Limits, ScratchBytes: c.ScratchBytes,
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Guest = agentv1.Configured{Kernel: sanitised(guest.Kernel), Crun: sanitised(guest.Crun), BootID: sanitised(guest.BootID)}
	return nil
}

// sanitised cleans and shortens a name that the guest reports.
func sanitised(name string) string { return strings.ToValidUTF8(name[:min(len(name), 128)], "?") }

func (s *Sandbox) completeStart(m *liveVM) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vm != m {
		return ErrVMGone
	}
	before := s.state
	s.state.State, s.state.StartedAt, s.state.Starting = Running, now(), false
	s.state.ExitReason, s.state.ExitMessage = "", ""
	if err := s.save(); err != nil {
		s.state = before
		return err
	}
	fault.Point("sandbox.running")
	s.stopped = make(chan struct{})
	s.emit(Event{Kind: SandboxStarted})
	return nil
}

// abandon kills the VM of a failed start.
func (s *Sandbox) abandon(ctx context.Context, b *boot, why string) error {
	b.cancel()
	<-b.done
	if b.vm != nil {
		return s.kill(ctx, b.vm, ReasonStartFailed, why)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setStopped(ReasonStartFailed, why)
	return nil
}
