package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/undo"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/disks"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/records"
	"github.com/bulkhead-project/bulkhead/sandbox/logs"
)

// CreateContainer creates a container (state Ready) in a running sandbox. It takes over the configuration's
// descriptors, also when it fails. A missing command or one that cannot be executed fails StartProcess, not
// CreateContainer.
func (s *Sandbox) CreateContainer(ctx context.Context, c ContainerConfig) (err error) {
	for _, v := range c.disks() {
		if v.Disk != nil {
			defer v.Disk.Close()
		}
	}
	var rollback undo.Stack
	// Deferred first, so that it wraps the error after the rollback has been joined to it.
	defer func() {
		if err != nil {
			err = fmt.Errorf("create container %s: %w", c.ID, err)
		}
	}()
	defer rollback.OnError(ctx, &err)
	if c.Log != nil {
		rollback.Push("log", func(context.Context) error { closeQuietly(c.Log); return nil })
	}
	if err := c.validate(); err != nil {
		return err
	}
	m, err := s.running("create a container in", Running)
	if err != nil {
		return err
	}
	ctx, done := m.Call(ctx, s.o.CallTimeout)
	defer done()
	p := s.newProcess(Process{Container: c.ID}, m, c.Terminal, c.Stdio)
	if err := s.reserve(p); err != nil {
		return err
	}
	rollback.Push("id", func(context.Context) error { s.remove(p); return nil })
	if err := s.createFiles(p, c, &rollback); err != nil {
		return err
	}
	fault.Point("task.laid")
	for _, v := range c.disks() {
		if v.ID == agentv1.RingDisk {
			if err := s.devices.Slots.UseRing(ctx, s.devices.Disks(m), v.Disk); err != nil {
				s.log.Info("no ring for shared directories: they are read through their port alone", "reason", err)
			}
			continue
		}
		rollback.Push("disk", func(ctx context.Context) error { return s.devices.Release(ctx, m) })
		if err := s.devices.Slots.Use(ctx, s.devices.Disks(m), v.disk(), v.Disk); err != nil {
			return err
		}
		rollback.Push("disk", func(context.Context) error { s.devices.Slots.Drop(v.ID); return nil })
		p.disks = append(p.disks, v.ID)
	}
	// The record is stored before the agent creates the container. So a new shim that finds a record without a
	// container can tell that the creation was interrupted.
	if err := s.record(p); err != nil {
		return err
	}
	fault.Point("task.recorded")
	rollback.Push("container", func(ctx context.Context) error {
		_, err := m.Agent.Delete(ctx, p.id)
		if errors.Is(err, errdefs.ErrNotFound) || m.Context().Err() != nil {
			return nil //nolint:nilerr // it is gone, with its VM or without
		}
		return err
	})
	created, err := m.Agent.Create(ctx, agentv1.Create{
		Container: c.ID, RootRecord: containerv1.RecordOf(c.Root), Spec: c.Spec,
		Terminal: c.Terminal, Stdin: p.hasStdin(), StdinOnce: c.Stdio.Input() == containerv1.StdinOnce,
	})
	fault.Point("task.created")
	if err != nil && !cannotRun(err) {
		return m.Fault(err)
	}
	return s.publish(p, created, err)
}

func cannotRun(err error) bool {
	return errors.Is(err, agentv1.ErrNoCommand) || errors.Is(err, agentv1.ErrNotExec)
}

func (c ContainerConfig) validate() error {
	_, logs := c.Stdio.(containerv1.Log)
	switch {
	case !containerv1.ValidID(c.ID):
		return fmt.Errorf("%w: id %.80q", errdefs.ErrInvalidArgument, c.ID)
	case c.Root == nil || c.Stdio == nil:
		return fmt.Errorf("%w: it needs a root file system and standard streams", errdefs.ErrInvalidArgument)
	case slices.ContainsFunc(c.disks(), func(v Volume) bool { return v.ID == "" || v.ID == disks.Scratch }):
		return fmt.Errorf("%w: an image or a block device has an empty or reserved id", errdefs.ErrInvalidArgument)
	case (c.Log != nil) != logs:
		return fmt.Errorf("%w: a log file must come with standard streams of type Log, and only with them", errdefs.ErrInvalidArgument)
	}
	return described(containerv1.Check(containerv1.Container{Root: c.Root, Stdio: c.Stdio}))
}

// described adds this package's errdefs.ErrInvalidArgument to an error of containerv1.
func described(err error) error {
	if errors.Is(err, containerv1.ErrInvalid) {
		return fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
	}
	return err
}

// record returns the stored part of the configuration.
func (c *ContainerConfig) record() records.ContainerConfig {
	var volumes []records.Volume
	for _, v := range c.Volumes {
		volumes = append(volumes, records.Volume{ID: v.ID})
	}
	return records.ContainerConfig{
		ID: c.ID, RootRecord: containerv1.RecordOf(c.Root), Volumes: volumes, Terminal: c.Terminal,
		StdioRecord: records.StdioOf(c.Stdio),
	}
}

// createFiles creates the container's files in the state directory.
func (s *Sandbox) createFiles(p *process, c ContainerConfig, rollback *undo.Stack) error {
	dir := s.store.Container(c.ID)
	rollback.Push("directory", func(context.Context) error { return os.RemoveAll(dir) })
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := s.store.Write(s.store.Container(c.ID, "config.json"), c.record()); err != nil {
		return err
	}
	if c.Log == nil {
		return nil
	}
	w, err := logs.Open(s.store.Container(c.ID, "log"), c.Log, s.config.LogBytes)
	if err != nil {
		return err
	}
	s.processes.mu.Lock()
	p.log = w
	s.processes.mu.Unlock()
	rollback.Push("log's record", func(context.Context) error { return w.Close() })
	return nil
}

// closeQuietly closes a file that may be closed already.
func closeQuietly(f *os.File) { _ = f.Close() }

// CreateExec registers a process for a running container. The process does not run before StartProcess, so a client can
// attach first and miss no output.
func (s *Sandbox) CreateExec(_ context.Context, e ExecConfig) error {
	_, streams := e.Stdio.(containerv1.Stream)
	_, discards := e.Stdio.(containerv1.Discard)
	_, host := e.Stdio.(containerv1.Descriptors)
	if err := containerv1.Check(containerv1.Container{Stdio: e.Stdio}); err != nil {
		return fmt.Errorf("create %s: %w", subject(e.Process), described(err))
	}
	if !containerv1.ValidID(e.Exec) || !streams && !discards && !host {
		return fmt.Errorf("create %s: %w: it needs an id and other standard streams than %T", subject(e.Process),
			errdefs.ErrInvalidArgument, e.Stdio)
	}
	m, err := s.running("create a process in", Running)
	if err != nil {
		return err
	}
	return s.createExec(e, m)
}
