package blocks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// Parts are the block devices of a container that is being created. They are open and locked, except those that the
// pod's VM already has.
type Parts struct {
	parts []layout.Part
	disks []*Disk // nil if the VM has it
	sent  []string
}

// Parts opens and locks the block devices of a container, all or none. The caller must close them. The error
// matches ErrInUse if one is in use.
func (s *Set) Parts(ctx context.Context, id string, all []store.Block) (*Parts, error) {
	p := &Parts{}
	for _, b := range all {
		part, disk, err := s.part(ctx, id, b)
		if err != nil {
			p.Close()
			return nil, err
		}
		p.parts, p.disks = append(p.parts, part), append(p.disks, disk)
	}
	return p, nil
}

// Send sends the open files to the shim, under names that begin with prefix, and returns the parts for the shim's
// request.
func (p *Parts) Send(
	ctx context.Context, prefix string, send func(ctx context.Context, name string, f *os.File) error,
) ([]layout.Part, error) {
	for i, disk := range p.disks {
		if disk == nil {
			continue
		}
		name := fmt.Sprintf("%s-%d", prefix, i)
		p.sent = append(p.sent, name) // even a failed send may have arrived
		if err := send(ctx, name, disk.File); err != nil {
			return nil, fmt.Errorf("send a block device: %w", err)
		}
		p.parts[i].File = name
	}
	return p.parts, nil
}

// closeUnusedWait bounds the calls to a shim that does not answer.
const closeUnusedWait = 2 * time.Second

// CloseUnused asks the shim to close the sent files that it has not used, with their locks. It works even if ctx has
// ended. An unreachable shim closes them within a minute, or when it exits.
func (p *Parts) CloseUnused(ctx context.Context, send func(ctx context.Context, name string, f *os.File) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeUnusedWait)
	defer cancel()
	for _, name := range p.sent {
		_ = send(ctx, name, nil) // best effort
	}
}

// Close closes the files. The receivers keep the locks.
func (p *Parts) Close() {
	for _, disk := range p.disks {
		if disk != nil {
			disk.Close()
		}
	}
}

// part returns a block device in the form for the pod's shim, and its open and locked file, or nil if the pod
// already has the device. but is the id of the container.
func (s *Set) part(ctx context.Context, but string, b store.Block) (layout.Part, *Disk, error) {
	part := layout.Part{Of: containerv1.Block{Name: Name(b), FS: containerv1.FS(b.FS), ReadOnly: b.ReadOnly}}
	var have *store.Block
	for _, other := range s.pod.Blocks(but) {
		if other.Path == b.Path && (have == nil || !other.ReadOnly) {
			have = &other
		}
	}
	switch {
	case have == nil:
		disk, err := s.open(ctx, b)
		return part, disk, s.heldBy(err, b)
	case have.FS != b.FS:
		return part, nil, failure.Invalid("block device %.200q is mounted both with and without its file system", b.Path)
	case have.ReadOnly && !b.ReadOnly:
		return part, nil, inUse(b.Path, "the pod itself has it read-only")
	}
	return part, nil, nil
}

// open opens and locks a block device that no container of the pod has. The pod's own VM may still have it, if a
// release failed at the removal of its last container. Then open asks the VM again.
func (s *Set) open(ctx context.Context, b store.Block) (*Disk, error) {
	disk, err := open(b.Path, b.Device, b.ReadOnly)
	if !errors.Is(err, ErrInUse) {
		if errors.Is(err, errMoved) {
			return Open(ctx, b.Path, b.Device, b.ReadOnly)
		}
		return disk, err
	}
	kept := s.pod.Release(ctx)
	disk, err = Open(ctx, b.Path, b.Device, b.ReadOnly)
	if errors.Is(err, ErrInUse) && kept != nil {
		err = errors.Join(err, kept)
	}
	return disk, err
}
