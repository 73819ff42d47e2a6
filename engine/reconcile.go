package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/sandbox"
)

// maxTermination is the limit of the kubelet for a termination message, in bytes.
const maxTermination = 4096

// exitKilled is the exit code of a container that ended with its VM.
const exitKilled = 137

// reconcile takes over the shim's status of all containers. It stores and publishes starts and exits that the
// engine does not know yet.
func (p *pod) reconcile(ctx context.Context, c *link.Conn) error {
	p.reconciling.Lock()
	defer p.reconciling.Unlock()
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	status, err := c.Ext.Status(ctx, &shimv1.StatusRequest{})
	if err != nil {
		return err
	}
	stopped, reason := status.GetState() == string(sandbox.Stopped), status.GetExitReason()
	if stopped {
		if reason == "" {
			reason = "the VM has ended"
		}
		// This comes before the exits of its containers: a client that sees an exit must not try to restart the
		// container in this VM.
		err = p.update(func(r *store.Pod) {
			if r.Exit == "" {
				r.Exit = reason
			}
		})
	}
	known := map[string]bool{}
	for _, st := range status.GetContainers() {
		if st.GetExecId() != "" {
			continue
		}
		known[st.GetId()] = true
		if ctr := p.container(st.GetId()); ctr != nil {
			ctr.applyStatus(ctx, c, st)
		}
	}
	if !stopped {
		err = errors.Join(err, p.dropHalfMade(known))
	}
	p.mu.Lock()
	p.paused = status.GetState() == string(sandbox.Paused)
	p.mu.Unlock()
	if stopped {
		p.recordExits(time.Now(), sandbox.ReasonVMKilled, reason)
	}
	return err
}

// dropHalfMade drops the containers that an earlier engine was creating when it was killed. They have a record, but
// are not in known, the containers of the shim.
func (p *pod) dropHalfMade(known map[string]bool) error {
	p.mu.Lock()
	var lost []*container
	for id, ctr := range p.containers {
		if ctr.loaded && !known[id] && ctr.state() == ContainerCreated {
			lost = append(lost, ctr)
		}
		ctr.loaded = false
	}
	p.mu.Unlock()
	var errs []error
	for _, ctr := range lost {
		p.e.log.Info("an unfinished container is dropped", "pod", p.id, "container", ctr.ID)
		errs = append(errs, ctr.drop())
	}
	return errors.Join(errs...)
}

// recordExits records an exit for every container without one, because its VM has ended.
func (p *pod) recordExits(at time.Time, reason, message string) {
	open := map[*container]time.Time{} // start times
	p.mu.Lock()
	for _, ctr := range p.containers {
		if ctr.Exit == nil {
			open[ctr] = ctr.Started
		}
	}
	p.mu.Unlock()
	for ctr, started := range open {
		ctr.setExit(store.Exit{Code: exitKilled, Reason: reason, Message: message, Started: started, At: at})
	}
}

// container returns the pod's container with that id, or nil.
func (p *pod) container(id string) *container {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.containers[id]
}

// applyStatus takes over the status of one container.
func (c *container) applyStatus(ctx context.Context, shim *link.Conn, st *shimv1.ContainerStatus) {
	state := sandbox.State(st.GetState())
	started := time.Time{}
	if st.GetStartedAt() != nil {
		started = st.GetStartedAt().AsTime()
	}
	c.setUser(st.GetUser())
	if !started.IsZero() {
		c.setStarted(started)
	}
	if state != sandbox.Stopped {
		return
	}
	c.pod.mu.Lock()
	ended := c.Exit != nil
	c.pod.mu.Unlock()
	if ended {
		return
	}
	exit := store.Exit{
		Code: int(st.GetExitCode()), Reason: st.GetReason(), Message: st.GetMessage(),
		Started: started, At: st.GetExitedAt().AsTime(),
	}
	if exit.Reason == sandbox.ReasonOOMKilled && exit.Message == "" {
		exit.Message = c.outOfMemory()
	}
	if st.GetExitedAt() == nil {
		exit.At = time.Now()
	}
	if c.Termination != nil {
		err := c.copyTermination(ctx, shim)
		if errors.Is(ctx.Err(), context.Canceled) {
			return // the engine closes; the next one asks again
		}
		if err != nil {
			c.pod.e.log.Warn("copy a container's termination message", "container", c.ID, "error", err)
		}
	}
	c.setExit(exit)
}

// outOfMemory describes the limit that a container exceeded.
func (c *container) outOfMemory() string {
	own, r := c.demand(), c.pod.snapshot()
	switch {
	case own.StatesMemory():
		return fmt.Sprintf("it needed more memory than its limit of %d MiB", own.MemoryLimit>>20)
	case r.Asked != nil && r.Asked.Limits.MemoryBytes > 0:
		return fmt.Sprintf("it needed more memory than its pod's limit of %d MiB", r.Asked.Limits.MemoryBytes>>20)
	}
	return fmt.Sprintf("it states no limit of memory, and needed more than its VM of %d MiB has: state a limit, "+
		"or set another default (BULKHEAD_DEFAULT_MEMORY, default-memory)", r.MemoryMiB)
}

// copyTermination copies the container's termination message to its file on the host.
func (c *container) copyTermination(ctx context.Context, shim *link.Conn) error {
	file, err := shim.Ext.ReadFile(ctx, &shimv1.ReadFileRequest{
		ContainerId: c.ID, Path: c.Termination.Container, Limit: maxTermination,
	})
	if failure.NotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	data := file.GetData()
	root, name, err := c.pod.e.paths.Open(c.Termination.Host)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(data[max(0, len(data)-maxTermination):], 0)
	return err
}

// setUser sets the user of a container's first process, once.
func (c *container) setUser(u *shimv1.User) {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	if u != nil && c.User == nil {
		c.User = &store.User{UID: u.GetUid(), GID: u.GetGid(), Groups: u.GetGroups()}
	}
}

// setStarted stores and publishes the start of a container, once.
func (c *container) setStarted(at time.Time) {
	c.pod.mu.Lock()
	first := c.Started.IsZero()
	if first {
		c.Started = at
		if err := c.pod.e.store.PutContainer(c.pod.id, &c.Container); err != nil {
			c.pod.e.log.Error("store a container's start", "container", c.ID, "error", err)
		}
	}
	c.pod.mu.Unlock()
	if first {
		c.pod.e.emit(Started, c.pod, c.ID)
	}
}

// setExit stores and publishes the exit of a container, once.
func (c *container) setExit(exit store.Exit) {
	c.pod.mu.Lock()
	first := c.Exit == nil
	if first {
		c.Exit = &exit
		if err := c.pod.e.store.PutExit(c.pod.id, c.ID, &exit); err != nil {
			c.pod.e.log.Error("store a container's end", "container", c.ID, "error", err)
		}
	}
	c.pod.mu.Unlock()
	if first {
		c.pod.e.emit(Stopped, c.pod, c.ID)
	}
}
