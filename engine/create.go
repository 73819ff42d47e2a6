package engine

import (
	"context"
	"fmt"
	"os"
	"time"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/bundle"
	"github.com/bulkhead-project/bulkhead/engine/demand"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/shares"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
	"github.com/bulkhead-project/bulkhead/internal/undo"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// createTimeout bounds the creation of a container. Under emulation the first one of a VM is slow.
const createTimeout = 2 * time.Minute

// CreateContainer creates a container in a ready pod and returns its id. If a container with the key is being
// created, or is created and not started, it returns that container's id. When ctx ends, only the wait ends.
func (e *Engine) CreateContainer(ctx context.Context, podID string, r ContainerRequest) (string, error) {
	p, err := e.find(podID)
	if err != nil {
		return "", err
	}
	if err := r.check(); err != nil {
		return "", failure.Wrap(err, "create container %s", r.Name)
	}
	return e.do(ctx, fmt.Sprintf("container %s/%s", p.id, r.Key), func(ctx context.Context) (string, error) {
		done, err := e.admit(ctx)
		if err != nil {
			return "", err
		}
		defer done()
		ctx, cancel := context.WithTimeout(ctx, createTimeout)
		defer cancel()
		id, err := p.create(ctx, r)
		if lost(err) {
			id, err = p.create(ctx, r) // by the next shim, once
		}
		return id, failure.Wrap(err, "create container %s", r.Name)
	})
}

// create creates the container.
func (p *pod) create(ctx context.Context, r ContainerRequest) (id string, err error) {
	if id, err := p.existing(r.Key); id != "" || err != nil {
		return id, err
	}
	c, err := p.live(ctx)
	if err != nil {
		return "", err
	}
	if r.Termination != nil {
		if err := p.e.paths.Check(r.Termination.Host); err != nil {
			return "", failure.Wrap(err, "termination message")
		}
	}
	if err := p.volumes.Ensure(ctx, r.Files); err != nil {
		return "", err
	}
	shared, err := p.shares.Of(ctx, r.Staging, r.Root, r.Mounts)
	if err != nil {
		return "", err
	}
	devices, err := p.blocks.Of(ctx, r.Root, r.Mounts)
	if err != nil {
		return "", err
	}
	done, err := p.blocks.Turn(ctx, devices)
	if err != nil {
		return "", err
	}
	defer done()
	var rollback undo.Stack
	defer rollback.OnError(ctx, &err)
	id = store.NewID()
	if r.Adjust != nil {
		var undo func()
		if r.Spec, undo, err = r.Adjust(ctx, id); err != nil {
			return "", err
		}
		rollback.Push("adjusted", func(context.Context) error { undo(); return nil })
	}
	mounts, err := shares.Named(r.Mounts, shared)
	if err == nil {
		mounts, err = p.blocks.Named(ctx, mounts, devices)
	}
	if err != nil {
		return "", err
	}
	ctr := newContainer(p, id, r)
	ctr.Shares, ctr.Blocks = shared, devices
	rollback.Push("record", func(context.Context) error { return p.e.store.DropContainer(p.id, ctr.ID) })
	if err := p.e.store.PutContainer(p.id, &ctr.Container); err != nil {
		return "", err
	}
	fault.Point("container.recorded")
	if err := p.shares.Ensure(ctx, shared); err != nil {
		return "", err
	}
	if hasEmptyDirs(mounts) && !p.snapshot().Volumes {
		if err := p.setState(func(r *store.Pod) { r.Volumes = true }); err != nil {
			return "", err
		}
	}
	// The images stay pinned as long as the pod exists: its VM may keep the disk in a slot.
	disks := disksOf(r.Root, mounts)
	for _, id := range disks {
		if err := p.e.images.Pin(ctx, id, p.id); err != nil {
			return "", err
		}
	}
	fault.Point("container.pinned")
	state := p.e.store.StateDir(p.id)
	rollback.Push("bundle", func(context.Context) error { return bundle.Remove(state, ctr.ID) })
	dir, err := bundle.Write(state, ctr.ID, r.Spec, mounts, p.snapshot().Owner)
	if err != nil {
		return "", err
	}
	fault.Point("container.bundled")
	rollback.Push("size", func(ctx context.Context) error { p.refit(ctx); return nil })
	defer ctr.addCreating()()
	if err := p.grow(ctx); err != nil {
		return "", err
	}
	rollback.Push("task", func(ctx context.Context) error {
		c, err := p.live(ctx) // a new shim, if this one dies
		if err != nil {
			return nil //nolint:nilerr // the pod has ended, and all its tasks
		}
		return deleteTask(ctx, c, ctr.ID)
	})
	if err := ctr.createTask(ctx, c, r, disks, dir); err != nil {
		return "", err
	}
	fault.Point("container.created")
	ctr.askUser(ctx, c)
	if err := ctr.publish(); err != nil {
		return "", err
	}
	p.e.emit(Created, p, ctr.ID)
	return ctr.ID, nil
}

func newContainer(p *pod, id string, r ContainerRequest) *container {
	log, _ := r.Stdio.(containerv1.Log)
	root, _ := r.Root.(containerv1.Image)
	ctr := &container{pod: p, Stored: store.Stored{Container: store.Container{
		ID: id, Key: r.Key, Name: r.Name, Record: r.Record, ImageID: root.ID, Created: time.Now(), Log: log.File,
		Files: r.Files, StopSignal: r.StopSignal, Termination: r.Termination,
	}}}
	if linux := r.Spec.Linux; linux != nil {
		ctr.SetDemand(demand.Of(linux.Resources, sizing.Demand{}))
		linux.CgroupsPath = "/" + ctr.ID
	}
	return ctr
}

// existing returns the id of a container with that key that is created and not started.
func (p *pod) existing(key string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, c := range p.containers {
		switch {
		case c.Key != key:
		case c.state() == ContainerCreated:
			return id, nil
		default:
			return "", failure.New(errdefs.ErrAlreadyExists, "attempt %s has been started (%s)", key, shortid.Of(id))
		}
	}
	return "", nil
}

// sendDisk sends an image's disk to the shim.
func (p *pod) sendDisk(ctx context.Context, c *link.Conn, name, id string) error {
	disk, err := p.e.images.OpenDisk(id)
	if err != nil {
		return err
	}
	defer disk.Close()
	if err := c.SendFile(ctx, name, disk); err != nil {
		return fmt.Errorf("send the image's disk: %w", err)
	}
	return nil
}

// sendRing sends the shim the memory for large answers of shared directories, read-only.
func (p *pod) sendRing(ctx context.Context, c *link.Conn, name string, ring *os.File) error {
	disk, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", ring.Fd()))
	if err != nil {
		return fmt.Errorf("open the memory for answers: %w", err)
	}
	defer disk.Close()
	if err := c.SendFile(ctx, name, disk); err != nil {
		return fmt.Errorf("send the memory for answers: %w", err)
	}
	return nil
}

// askUser asks the shim for the user of a container's first process. If that fails, the next reconcile sets it.
func (c *container) askUser(ctx context.Context, shim *link.Conn) {
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	st, err := shim.Ext.Status(ctx, &shimv1.StatusRequest{})
	if err != nil {
		return
	}
	for _, word := range st.GetContainers() {
		if word.GetId() == c.ID && word.GetExecId() == "" {
			c.setUser(word.GetUser())
		}
	}
}

// addCreating registers the container for a new shim until the caller calls created. The present shim may die before
// the container is visible.
func (c *container) addCreating() (created func()) {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	c.pod.making[c.ID] = c
	return func() {
		c.pod.mu.Lock()
		defer c.pod.mu.Unlock()
		delete(c.pod.making, c.ID)
	}
}

// publish makes the container visible, unless the pod has been stopped meanwhile.
func (c *container) publish() error {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	if !c.pod.ready() {
		return c.pod.notReady()
	}
	c.pod.containers[c.ID] = c
	return nil
}

// createTask opens the files of the container and asks the shim to create its task. disks are the ids of the images
// that it gets as disks, the root's first.
func (c *container) createTask(
	ctx context.Context, shim *link.Conn, r ContainerRequest, disks []string, dir string,
) (err error) {
	// If one block device is not available, the locks of the others are released soon.
	devices, err := c.pod.blocks.Parts(ctx, c.ID, c.Blocks)
	if err != nil {
		return err
	}
	defer devices.Close()
	fault.Point("container.locked")
	req := &taskv3.CreateTaskRequest{ID: c.ID, Bundle: dir, Terminal: r.TTY}
	var parts []layout.Part
	if root, ok := r.Root.(containerv1.Share); ok {
		name, err := shares.RootName(root, c.Shares)
		if err != nil {
			return err
		}
		parts = append(parts, layout.Part{Of: containerv1.Share{Name: name}})
	}
	for i, id := range disks {
		name := fmt.Sprintf("disk-%s-%d", c.ID, i)
		if err := c.pod.sendDisk(ctx, shim, name, id); err != nil {
			return err
		}
		parts = append(parts, layout.Part{Of: containerv1.Image{ID: id}, File: name})
	}
	defer func() {
		if err != nil {
			devices.CloseUnused(ctx, shim.SendFile)
		}
	}()
	sent, err := devices.Send(ctx, "block-"+c.ID, shim.SendFile)
	if err != nil {
		return err
	}
	if _, ok := r.Root.(containerv1.Block); ok {
		parts = append(sent, parts...) // the root's is the first of sent
	} else {
		parts = append(parts, sent...)
	}
	if ring := c.pod.shares.Ring(); ring != nil && len(c.Shares) > 0 {
		name := "ring-" + c.ID
		if err := c.pod.sendRing(ctx, shim, name, ring); err != nil {
			return err
		}
		parts = append(parts, layout.Part{Of: containerv1.Block{Name: agentv1.RingDisk, ReadOnly: true}, File: name})
	}
	req.Rootfs = layout.EncodeRootfs(parts)
	stdio := r.Stdio
	if log, ok := stdio.(containerv1.Log); ok {
		f, err := c.pod.e.paths.OpenLog(log.File)
		if err != nil {
			return err
		}
		defer f.Close()
		log.File = "log-" + c.ID
		if err := shim.SendFile(ctx, log.File, f); err != nil {
			return fmt.Errorf("send the log: %w", err)
		}
		stdio = log
	}
	req.Stdin, req.Stdout, req.Stderr = containerv1.EncodeStdio(stdio)
	fault.Point("container.sent")
	if _, err := shim.Task.Create(ctx, req); err != nil {
		return err
	}
	return c.pod.fillVolumes(ctx, shim, c.Blocks)
}
