package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/undo"
)

// Rehearsal is what a member of a pool goes through before there is a pod for
// it: all that a pod's start will need, once, so that under emulation the code
// on that way is translated, in the guest as in QEMU. It is stored nowhere.
type Rehearsal struct {
	// MemoryMiB is what the machine is grown to; a pod that needs more grows
	// it further.
	MemoryMiB int `json:"memoryMiB"`
	// Network is the member's own, as its pod's Config will have it.
	Network *agentv1.Network `json:"network,omitempty"`
	// Container is the OCI specification of a container that waits to be
	// killed, and Exec the process of one in it that ends by itself.
	Container json.RawMessage `json:"container"`
	Exec      json.RawMessage `json:"exec"`
}

// RehearsalFiles are the descriptors that Rehearse takes over; the sandbox
// closes them.
type RehearsalFiles struct {
	Scratch *os.File // the pod's, as in Files; Create is then given none
	Image   *os.File // the disk of the container's image
}

func (f RehearsalFiles) close() {
	for _, file := range []*os.File{f.Scratch, f.Image} {
		if file != nil {
			file.Close()
		}
	}
}

// rehearsalName is the name of all that a rehearsal has in the guest.
const rehearsalName = "rehearsal"

// errTaken ends the rehearsal of a machine for which a pod has come.
var errTaken = errors.New("there is a pod for the machine")

// Rehearse begins to make the machine of a sandbox without a pod ready for one,
// as far as that can be done without knowing it; WaitBooted returns when that
// is done. Create ends it early, between two of its steps, and then the machine
// is as good as it was. A sandbox whose rehearsal failed otherwise is of no
// use: Create refuses.
func (s *Sandbox) Rehearse(ctx context.Context, r Rehearsal, f RehearsalFiles) error {
	if err := s.acquire(ctx, "rehearse"); err != nil {
		f.close()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.created || s.deleted || s.closed || s.scratch != nil || s.booting == nil || f.Scratch == nil || f.Image == nil {
		s.release()
		f.close()
		return fmt.Errorf("rehearse: %w: %s has a pod, or has rehearsed, or lacks a disk", ErrInvalid, s.subject())
	}
	// Of the sandbox, not of the caller: who asked may go.
	ctx, s.interrupt = context.WithCancelCause(s.ctx)
	s.scratch, s.rehearsed = f.Scratch, make(chan struct{})
	s.spawn(func() {
		defer close(s.rehearsed)
		defer s.release()
		s.endRehearsal(s.rehearse(ctx, r, f.Image))
		f.Image.Close()
	})
	return nil
}

func (s *Sandbox) endRehearsal(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interrupt(nil)
	s.interrupt = nil
	if err != nil && !errors.Is(err, errTaken) {
		s.spoiled = fmt.Errorf("rehearse: %w", err)
	}
	for i := range s.state.Phases {
		s.state.Phases[i].Name = "ahead: " + s.state.Phases[i].Name
	}
}

// rehearse returns an error that matches errTaken, and nothing else, if it was
// ended early and has cleaned up.
func (s *Sandbox) rehearse(ctx context.Context, r Rehearsal, image *os.File) error {
	s.mu.Lock()
	b := s.booting
	s.mu.Unlock()
	select {
	case <-b.done:
		if b.err != nil {
			return b.err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	m := b.machine
	s.slots.Init(m.vm.Record().Machine)
	h := &rehearsal{s: s, m: m, r: r, image: image, slot: m.vm.Record().Machine.Scratch}
	err := h.run(ctx)
	if !errors.Is(err, errTaken) {
		err = m.fault(err)
	}
	if m.ctx.Err() != nil {
		return err
	}
	undo := h.undo.Rollback(ctx)
	if undo != nil {
		return fmt.Errorf("clean up: %w", undo) // not err, which may be no failure
	}
	return err
}

// rehearsal is one under way.
type rehearsal struct {
	s     *Sandbox
	m     *machine
	r     Rehearsal
	image *os.File
	slot  int
	undo  undo.Stack // of what the pod must not find, failure or not
}

func (h *rehearsal) run(ctx context.Context) error {
	s, m := h.s, h.m
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"grow", func(ctx context.Context) error { return s.grow(ctx, m, h.r.MemoryMiB) }},
		{"configure", func(ctx context.Context) error {
			_, err := s.introduce(ctx, m, agentv1.Configure{
				Sandbox: rehearsalName, Hostname: rehearsalName, Network: h.r.Network, Rehearsal: true,
			})
			return err
		}},
		{"scratch", func(ctx context.Context) error { return s.mountScratch(ctx, m) }},
		{"image", h.mount},
		{"create", h.create},
		{"start", func(ctx context.Context) error { return m.agent.Start(ctx, h.first()) }},
		{"exec", h.exec},
	} {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// A step that was begun is finished: half of one is of no use.
		call, done := m.call(context.WithoutCancel(ctx), s.o.BootTimeout)
		err := s.phase(step.name, func() error { return step.do(call) })
		done()
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		if step.name == scratchName {
			s.mu.Lock()
			s.mounted = true
			s.mu.Unlock()
		}
	}
	return nil
}

func (h *rehearsal) first() agentv1.Process { return agentv1.Process{Container: rehearsalName} }

func (h *rehearsal) mount(ctx context.Context) error {
	h.undo.Push("image", func(ctx context.Context) error {
		if err := h.m.agent.Unmount(ctx, agentv1.Unmount{Name: rehearsalName}); err != nil {
			return err
		}
		return h.m.vm.Detach(ctx, h.slot)
	})
	if err := h.m.vm.Attach(ctx, h.slot, h.image, hypervisor.ReadOnly); err != nil {
		return err
	}
	return h.m.agent.Mount(ctx, agentv1.Mount{Name: rehearsalName, Slot: h.slot, FS: "erofs", ReadOnly: true})
}

func (h *rehearsal) create(ctx context.Context) error {
	h.undo.Push("container", func(ctx context.Context) error {
		_ = h.m.agent.Signal(ctx, agentv1.Signal{Process: h.first(), Signal: int(unix.SIGKILL)}) // it may have ended
		if _, err := h.m.agent.Wait(ctx, h.first()); err != nil && !errors.Is(err, agentv1.ErrNotFound) {
			return err
		}
		_, err := h.m.agent.Delete(ctx, h.first())
		if errors.Is(err, agentv1.ErrNotFound) {
			return nil
		}
		return err
	})
	_, err := h.m.agent.Create(ctx, agentv1.Create{
		Container:  rehearsalName,
		RootRecord: containerv1.RecordOf(containerv1.Image{ID: rehearsalName}),
		Spec:       h.r.Container,
	})
	return err
}

// exec runs a process and takes all that it leaves.
func (h *rehearsal) exec(ctx context.Context) error {
	p := agentv1.Process{Container: rehearsalName, Exec: rehearsalName}
	if _, err := h.m.agent.Exec(ctx, agentv1.Exec{Process: p, Spec: h.r.Exec}); err != nil {
		return err
	}
	for _, name := range []string{"stdout", "stderr"} {
		if err := h.read(ctx, agentv1.Output{Process: p, Stream: name}); err != nil {
			return err
		}
	}
	if _, err := h.m.agent.Wait(ctx, p); err != nil {
		return err
	}
	_, err := h.m.agent.Delete(ctx, p)
	return err
}

func (h *rehearsal) read(ctx context.Context, o agentv1.Output) error {
	out, err := h.m.agent.Output(ctx, o)
	if err != nil {
		return err
	}
	defer out.Close()
	for {
		offset, data, err := out.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = out.Ack(offset + int64(len(data)))
		}
		if err != nil {
			return err
		}
	}
}
