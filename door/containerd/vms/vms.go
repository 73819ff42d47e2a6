// Package vms is the front's Runtime: it runs containers in VMs, by package door/oci.
package vms

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/door/containerd"
	"github.com/bulkhead-project/bulkhead/door/oci"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// Runtime runs containers in VMs. Open returns it.
type Runtime struct {
	root string
	log  *slog.Logger

	mu    sync.Mutex
	doors map[string]*oci.Door // of containers that this process has created
	other *oci.Door            // of all others
}

var _ containerd.Runtime = (*Runtime)(nil)

// Open returns the Runtime for the containers in a namespace of the containerd with an address. Containers of other
// namespaces, and of another containerd, may have the same ids.
func Open(address, namespace string, log *slog.Logger) (*Runtime, error) {
	roots, err := dirs.Default(dirs.Run)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(address))
	root := filepath.Join(roots.State, "containerd", hex.EncodeToString(sum[:6])+"-"+namespace)
	other, err := oci.New(oci.Options{Root: root, Logger: log})
	if err != nil {
		return nil, err
	}
	return &Runtime{root: root, log: log, doors: map[string]*oci.Door{}, other: other}, nil
}

// door returns the door of a container.
func (r *Runtime) door(id string) *oci.Door {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.doors[id]; d != nil {
		return d
	}
	return r.other
}

// Create implements containerd.Runtime.
func (r *Runtime) Create(ctx context.Context, c containerd.CreateOptions) (containerd.Process, error) {
	d, err := oci.New(oci.Options{Root: r.root, Logger: r.log, Strict: c.Strict, SystemdCgroup: c.SystemdCgroup})
	if err != nil {
		return nil, err
	}
	pid, err := d.Create(ctx, oci.CreateOptions{
		ID: c.ID, Bundle: c.Bundle, Streams: files(c.Streams), Plain: c.Terminal, VCPUs: c.VCPUs, MemoryMiB: c.MemoryMiB,
	})
	if err != nil {
		return nil, class(err)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil, errors.Join(err, d.Delete(context.WithoutCancel(ctx), c.ID, true))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doors[c.ID] = d
	return watch(d, c.ID, "", p), nil
}

func files(s containerd.Streams) [3]*os.File { return [3]*os.File{s.Stdin, s.Stdout, s.Stderr} }

// Start implements containerd.Runtime.
func (r *Runtime) Start(ctx context.Context, id string) error {
	return class(r.door(id).Start(ctx, id))
}

// Exec implements containerd.Runtime.
func (r *Runtime) Exec(ctx context.Context, e containerd.ExecOptions) (containerd.Process, error) {
	var spec specs.Process
	if err := json.Unmarshal(e.Spec, &spec); err != nil {
		return nil, fmt.Errorf("%w: the process: %w", errdefs.ErrInvalidArgument, err)
	}
	spec.Terminal = e.Terminal
	d, name := r.door(e.Container), newName()
	p, err := d.Exec(ctx, oci.ExecOptions{
		ID: e.Container, Name: name, Process: &spec, Streams: files(e.Streams), Plain: e.Terminal,
	})
	if err != nil {
		return nil, class(err)
	}
	return watch(d, e.Container, name, p), nil
}

// KillAll implements containerd.Runtime.
func (r *Runtime) KillAll(ctx context.Context, id string, signal unix.Signal) error {
	return class(r.door(id).Kill(ctx, id, signal, true))
}

// Pause implements containerd.Runtime.
func (r *Runtime) Pause(ctx context.Context, id string) error {
	return class(r.door(id).Pause(ctx, id))
}

// Resume implements containerd.Runtime.
func (r *Runtime) Resume(ctx context.Context, id string) error {
	return class(r.door(id).Resume(ctx, id))
}

// Update implements containerd.Runtime.
func (r *Runtime) Update(ctx context.Context, id string, resources []byte) error {
	var limits specs.LinuxResources
	if err := json.Unmarshal(resources, &limits); err != nil {
		return fmt.Errorf("%w: the resources: %w", errdefs.ErrInvalidArgument, err)
	}
	return class(r.door(id).Update(ctx, id, &limits))
}

// Stats implements containerd.Runtime.
func (r *Runtime) Stats(ctx context.Context, id string) (*stats.Metrics, error) {
	st, err := r.door(id).Stats(ctx, id)
	if err != nil {
		return nil, class(err)
	}
	return metrics(&st), nil
}

// Delete implements containerd.Runtime.
func (r *Runtime) Delete(ctx context.Context, id string) error {
	d := r.door(id)
	if err := d.Delete(ctx, id, true); err != nil {
		return class(err)
	}
	r.mu.Lock()
	delete(r.doors, id)
	r.mu.Unlock()
	return nil
}
