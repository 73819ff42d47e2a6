// Package rehearsal runs a trial pod in a VM before the VM is copied for pods.
package rehearsal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/undo"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/disks"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/guest"
)

// Rehearsal describes the trial pod that Run runs in a VM before the VM is copied for pods. It covers everything that a pod's
// start needs. So under emulation, the code for it is translated already, in the guest and in QEMU.
type Rehearsal struct {
	// Network is configured like a pod's Config.Network.
	Network *agentv1.Network
	// Container is the OCI specification of a container that waits to be killed. Exec is a process in it that ends by
	// itself.
	Container, Exec json.RawMessage
	// Shared is the rehearsal of a container on a directory of the host; nil for none.
	Shared *Shared
}

// Shared describes a container on a directory of the host, as clients of OCI runtimes ask for it.
type Shared struct {
	// Name is the directory's name in the guest. Its files are the same as the image's.
	Name string
	// Container is like Rehearsal.Container.
	Container json.RawMessage
	// Ring is the memory for large answers. It stays the caller's.
	Ring *os.File
	// Serve starts the share server of the VM. stop ends it.
	Serve func(ctx context.Context) (stop func(context.Context) error, err error)
}

// Name names the sandbox, image, container and process of a rehearsal.
const Name = "rehearsal"

// Disks are the disks of the trial pod.
type Disks struct {
	// Scratch mounts the scratch disk, which stays mounted.
	Scratch func(context.Context) error
	// Image is the disk of the container's image. It stays the caller's.
	Image *os.File
}

// Run runs a trial pod in the VM. It then removes everything from the VM but the scratch disk. limit bounds each step.
func Run(ctx context.Context, m *guest.Live, r Rehearsal, d Disks, limit time.Duration) error {
	h := &run{m: m, r: r, disks: d, limit: limit, slot: m.VM.Record().VM.Scratch}
	err := m.Fault(h.run(ctx))
	if m.Context().Err() == nil {
		err = errors.Join(err, h.undo.Rollback(ctx))
	}
	return err
}

// run is a rehearsal in progress.
type run struct {
	m     *guest.Live
	r     Rehearsal
	disks Disks
	limit time.Duration
	slot  int        // of the image
	undo  undo.Stack // of everything that pods must not find
}

// Rounds is the number of container lives in a rehearsal. The first one changes the kernel and the agent for good; the
// second one takes the path that pods take.
const Rounds = 2

// step is one step of a rehearsal.
type step struct {
	name string
	do   func(context.Context) error
}

func (h *run) run(ctx context.Context) error {
	steps := []step{
		{"configure", func(ctx context.Context) error {
			_, err := h.m.Introduce(ctx, agentv1.Configure{
				Sandbox: Name, Hostname: Name, Network: h.r.Network, Rehearsal: true,
			})
			return err
		}},
		{disks.Scratch, h.disks.Scratch},
	}
	if shared := h.r.Shared; shared != nil {
		steps = append(steps, step{"share", h.share})
		steps = append(steps, h.lives(agentv1.Create{
			RootRecord: containerv1.RecordOf(containerv1.Share{Name: shared.Name}), Spec: shared.Container, Stdin: true,
		})...)
		steps = append(steps, step{"unmount", h.undo.Rollback})
	}
	// The image comes last: forks of it start from caches that know its path.
	steps = append(steps, step{"image", h.mount})
	steps = append(steps, h.lives(agentv1.Create{
		RootRecord: containerv1.RecordOf(containerv1.Image{ID: Name}), Spec: h.r.Container,
	})...)
	for _, step := range steps {
		call, done := h.m.Call(ctx, h.limit)
		err := step.do(call)
		done()
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// lives returns the steps of a container's lives.
func (h *run) lives(c agentv1.Create) (steps []step) {
	c.Container = Name
	for range Rounds {
		steps = append(steps,
			step{"create", func(ctx context.Context) error { _, err := h.m.Agent.Create(ctx, c); return err }},
			step{"start", func(ctx context.Context) error { return h.m.Agent.Start(ctx, h.first()) }},
			step{"exec", func(ctx context.Context) error { return h.exec(ctx, c.Stdin) }}, step{"delete", h.cleanUp})
	}
	return steps
}

func (h *run) first() agentv1.Process { return agentv1.Process{Container: Name} }

func (h *run) mount(ctx context.Context) error {
	h.undo.Push("image", func(ctx context.Context) error {
		if err := h.m.Agent.Unmount(ctx, agentv1.Unmount{Name: Name}); err != nil {
			return err
		}
		return h.m.VM.Detach(ctx, h.slot)
	})
	if err := h.m.VM.Attach(ctx, h.slot, h.disks.Image, hypervisor.ReadOnly); err != nil {
		return err
	}
	if err := h.m.Agent.Mount(ctx, agentv1.Mount{Name: Name, Slot: h.slot, FS: "erofs", ReadOnly: true}); err != nil {
		return err
	}
	h.undo.Push("container", h.cleanUp) // runs before the image is unmounted
	return nil
}

// cleanUp kills and deletes the container, if there is one.
func (h *run) cleanUp(ctx context.Context) error {
	_ = h.m.Agent.Signal(ctx, agentv1.Signal{Process: h.first(), Signal: int(unix.SIGKILL)}) // it may have ended
	if _, err := h.m.Agent.Wait(ctx, h.first()); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
		return err
	}
	_, err := h.m.Agent.Delete(ctx, h.first())
	if errors.Is(err, errdefs.ErrNotFound) {
		return nil
	}
	return err
}

// exec runs a process, reads all its output and deletes it.
func (h *run) exec(ctx context.Context, stdin bool) error {
	p := agentv1.Process{Container: Name, Exec: Name}
	if _, err := h.m.Agent.Exec(ctx, agentv1.Exec{Process: p, Spec: h.r.Exec, Stdin: stdin}); err != nil {
		return err
	}
	for _, name := range []string{"stdout", "stderr"} {
		if err := h.read(ctx, agentv1.Output{Process: p, Stream: name}); err != nil {
			return err
		}
	}
	if _, err := h.m.Agent.Wait(ctx, p); err != nil {
		return err
	}
	_, err := h.m.Agent.Delete(ctx, p)
	return err
}

func (h *run) read(ctx context.Context, o agentv1.Output) error {
	out, err := h.m.Agent.Output(ctx, o)
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

// share starts a share server and attaches its ring. The first container on the shared directory mounts it.
func (h *run) share(ctx context.Context) error {
	shared := h.r.Shared
	stop, err := shared.Serve(ctx)
	if err != nil {
		return err
	}
	h.undo.Push("share server", stop)
	ring := h.slot + 1
	h.undo.Push("ring", func(ctx context.Context) error {
		if err := h.m.Agent.Unmount(ctx, agentv1.Unmount{Name: agentv1.RingDisk}); err != nil {
			return err
		}
		return h.m.VM.Detach(ctx, ring)
	})
	if err := h.m.VM.Attach(ctx, ring, shared.Ring, hypervisor.ReadOnly); err != nil {
		return err
	}
	err = h.m.Agent.Mount(ctx, agentv1.Mount{Name: agentv1.RingDisk, Slot: ring, ReadOnly: true})
	h.undo.Push("shared directories", func(ctx context.Context) error {
		return h.m.Agent.Unmount(ctx, agentv1.Unmount{Name: agentv1.SharesMount})
	})
	h.undo.Push("container", h.cleanUp)
	return err
}
