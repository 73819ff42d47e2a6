// Package blocks attaches block devices of the host, and files used as such, to the disk slots of a pod's VM. The
// host neither mounts nor reads them. Each open file holds a lock. The VM's process shares the open file, so the
// lock lives as long as the VM has the disk, even if other processes die.
package blocks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/named"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/place"
)

// Pod is the interface to the pod.
type Pod interface {
	// Blocks returns the block devices of all its containers but one.
	Blocks(but string) []store.Block
	// Holder returns the NAMESPACE/NAME of another running pod that has the block device at path, or "" if unknown.
	Holder(path string) string
	// Release asks the pod's VM to release the block devices that no container uses.
	Release(ctx context.Context) error
}

// Set manages the block devices of one pod. Its methods are safe for concurrent use.
type Set struct {
	pod     Pod
	volumes *named.Store
	rules   place.Rules
	turn    chan struct{}
}

// New returns the block devices of a pod, which may include named volumes. The rules refuse paths of named volumes
// and of other directories of Bulkhead.
func New(pod Pod, volumes *named.Store, rules place.Rules) *Set {
	return &Set{pod: pod, volumes: volumes, rules: rules, turn: make(chan struct{}, 1)}
}

// Turn waits until no other container with block devices is being created or removed, because a new container must
// not count on a device that a removal releases. done ends the turn.
func (s *Set) Turn(ctx context.Context, all []store.Block) (done func(), err error) {
	if len(all) == 0 {
		return func() {}, nil
	}
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-ctx.Done():
		return nil, failure.Wrap(context.Cause(ctx), "wait for another container with block devices")
	}
}

// Of returns the block devices of root and mounts by path, without duplicates. The root's comes first.
func (s *Set) Of(ctx context.Context, root containerv1.Root, mounts []containerv1.Mount) (all []store.Block, err error) {
	if source, ok := root.(containerv1.Block); ok {
		mounts = append([]containerv1.Mount{{Destination: "/", Source: source}}, mounts...)
	}
	for _, m := range mounts {
		source, ok := m.Source.(containerv1.Block)
		if !ok {
			continue
		}
		path, err := s.find(ctx, source)
		if err != nil {
			return nil, failure.Wrap(err, "mount at %s", m.Destination)
		}
		one := store.Block{Asked: source.Name, Path: path, FS: string(source.FS), ReadOnly: source.ReadOnly, Device: source.Device}
		at := slices.IndexFunc(all, func(b store.Block) bool { return b.Path == path })
		switch {
		case at < 0:
			all = append(all, one)
		case all[at].FS != one.FS:
			return nil, failure.Invalid("mount at %s: block device %.200q is mounted both with and without its file system", m.Destination, path)
		default:
			all[at].ReadOnly = all[at].ReadOnly && one.ReadOnly
			all[at].Device = max(all[at].Device, one.Device) // equal by find if both are set
		}
	}
	return all, nil
}

// Name returns the name of a block device in the VM.
func Name(b store.Block) string {
	sum := sha256.Sum256([]byte(b.Path))
	return "volume-" + hex.EncodeToString(sum[:8])
}

// find returns the path of a block device or of a volume's disk, without links.
func (s *Set) find(ctx context.Context, source containerv1.Block) (string, error) {
	volume, ok := containerv1.VolumeOf(source.Name)
	if !ok {
		path, err := find(ctx, source.Name, source.Device)
		if err == nil && s.rules.Private(path) {
			err = &failure.Error{Class: errdefs.ErrPermissionDenied, Text: fmt.Sprintf("volume %.200q", source.Name), Err: place.ErrOwn}
		}
		return path, err
	}
	want := named.Disk
	if source.FS == containerv1.NoFS {
		want = named.Block
	}
	v, err := s.volumes.Get(volume)
	switch {
	case err != nil:
		return "", err
	case v.Kind != want:
		return "", failure.New(errdefs.ErrFailedPrecondition, "volume %s is a %s, not a %s", volume, v.Kind, want)
	}
	return filepath.EvalSymlinks(s.volumes.Image(volume))
}

// Named returns the mounts with the VM's names for block devices. A read-only mount cannot be written, even if the VM's
// disk is writable.
func (s *Set) Named(ctx context.Context, mounts []containerv1.Mount, all []store.Block) ([]containerv1.Mount, error) {
	named := slices.Clone(mounts)
	for i, m := range mounts {
		block, ok := m.Source.(containerv1.Block)
		if !ok {
			continue
		}
		path, err := s.find(ctx, block)
		at := slices.IndexFunc(all, func(b store.Block) bool { return b.Path == path })
		if err != nil || at < 0 {
			return nil, failure.Invalid("mount at %s: its block device is not the container's", m.Destination)
		}
		block.Name, block.Device = Name(all[at]), 0
		if block.ReadOnly {
			readOnly(&m, &block)
		}
		m.Source = block
		named[i] = m
	}
	return named, nil
}

func readOnly(m *containerv1.Mount, block *containerv1.Block) {
	if block.FS == containerv1.NoFS {
		block.Access = string(slices.DeleteFunc([]byte(block.Access), func(c byte) bool { return c == 'w' }))
		return
	}
	m.Options = append(slices.DeleteFunc(m.Options, func(o string) bool { return o == "rw" }), "ro")
}

// heldBy adds the pod that has the block device to an error that matches ErrInUse.
func (s *Set) heldBy(err error, b store.Block) error {
	if !errors.Is(err, ErrInUse) {
		return err
	}
	what := b.Path
	if volume, ok := containerv1.VolumeOf(b.Asked); ok {
		what = volume
	}
	if holder := s.pod.Holder(b.Path); holder != "" {
		return inUse(what, "pod "+holder+" has it")
	}
	return err
}
