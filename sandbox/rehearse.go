package sandbox

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/sandbox/internal/rehearsal"
)

// Rehearsal describes the trial pod of Rehearse.
type Rehearsal = rehearsal.Rehearsal

// SharedRehearsal describes the rehearsal of a container on a directory of the host.
type SharedRehearsal = rehearsal.Shared

// Rehearse runs a trial pod in the VM of a sandbox without a pod. It then removes everything from the VM but the
// scratch disk, which stays mounted. The sandbox cannot get a pod afterwards: the caller makes copies of its VM.
// Rehearse closes image; scratch stays the caller's.
func (s *Sandbox) Rehearse(ctx context.Context, r Rehearsal, scratch, image *os.File) error {
	defer image.Close()
	if err := s.acquire(ctx, "rehearse"); err != nil {
		return err
	}
	defer s.release()
	s.mu.Lock()
	unfit := s.created || s.deleted || s.work.Context().Err() != nil
	s.created = s.created || !unfit
	s.mu.Unlock()
	if unfit {
		return fmt.Errorf("rehearse: %w: %s has a pod or has rehearsed already", errdefs.ErrInvalidArgument, s.subject())
	}
	if err := s.WaitBooted(ctx); err != nil {
		return fmt.Errorf("rehearse: %w", err)
	}
	s.mu.Lock()
	m := s.booting.vm
	s.mu.Unlock()
	s.devices.Slots.Init(m.VM.Record().VM)
	err := rehearsal.Run(ctx, m, r, rehearsal.Disks{Image: image, Scratch: func(ctx context.Context) error {
		return s.devices.Slots.MountScratch(ctx, s.devices.Disks(m), scratch)
	}}, s.o.BootTimeout)
	if err != nil {
		return fmt.Errorf("rehearse: %w", err)
	}
	return nil
}
