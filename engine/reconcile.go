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
			p.applyStatus(ctx, c, ctr, st)
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

// applyStatus takes over the status of one container.
func (p *pod) applyStatus(ctx context.Context, c *link.Conn, ctr *container, st *shimv1.ContainerStatus) {
	state := sandbox.State(st.GetState())
	started := time.Time{}
	if st.GetStartedAt() != nil {
		started = st.GetStartedAt().AsTime()
	}
	p.setUser(ctr, st.GetUser())
	if !started.IsZero() {
		p.setStarted(ctr, started)
	}
	if state != sandbox.Stopped {
		return
	}
	p.mu.Lock()
	ended := ctr.Exit != nil
	p.mu.Unlock()
	if ended {
		return
	}
	exit := store.Exit{
		Code: int(st.GetExitCode()), Reason: st.GetReason(), Message: st.GetMessage(),
		Started: started, At: st.GetExitedAt().AsTime(),
	}
	if exit.Reason == sandbox.ReasonOOMKilled && exit.Message == "" {
		exit.Message = p.outOfMemory(ctr)
	}
	if st.GetExitedAt() == nil {
		exit.At = time.Now()
	}
	if ctr.Termination != nil {
		err := p.copyTermination(ctx, c, ctr)
		if errors.Is(ctx.Err(), context.Canceled) {
			return // the engine closes; the next one asks again
		}
		if err != nil {
			p.e.log.Warn("copy a container's termination message", "container", ctr.ID, "error", err)
		}
	}
	p.setExit(ctr, exit)
}

// outOfMemory describes the limit that a container exceeded.
func (p *pod) outOfMemory(ctr *container) string {
	own, r := ctr.demand(), p.snapshot()
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
func (p *pod) copyTermination(ctx context.Context, c *link.Conn, ctr *container) error {
	file, err := c.Ext.ReadFile(ctx, &shimv1.ReadFileRequest{
		ContainerId: ctr.ID, Path: ctr.Termination.Container, Limit: maxTermination,
	})
	if failure.NotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	data := file.GetData()
	root, name, err := p.e.paths.Open(ctr.Termination.Host)
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
func (p *pod) setUser(ctr *container, u *shimv1.User) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u != nil && ctr.User == nil {
		ctr.User = &store.User{UID: u.GetUid(), GID: u.GetGid(), Groups: u.GetGroups()}
	}
}

// setStarted stores and publishes the start of a container, once.
func (p *pod) setStarted(ctr *container, at time.Time) {
	p.mu.Lock()
	first := ctr.Started.IsZero()
	if first {
		ctr.Started = at
		if err := p.e.store.PutContainer(p.id, &ctr.Container); err != nil {
			p.e.log.Error("store a container's start", "container", ctr.ID, "error", err)
		}
	}
	p.mu.Unlock()
	if first {
		p.e.emit(Started, p, ctr.ID)
	}
}

// setExit stores and publishes the exit of a container, once.
func (p *pod) setExit(ctr *container, exit store.Exit) {
	p.mu.Lock()
	first := ctr.Exit == nil
	if first {
		ctr.Exit = &exit
		if err := p.e.store.PutExit(p.id, ctr.ID, &exit); err != nil {
			p.e.log.Error("store a container's end", "container", ctr.ID, "error", err)
		}
	}
	p.mu.Unlock()
	if first {
		p.e.emit(Stopped, p, ctr.ID)
	}
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
		p.setExit(ctr, store.Exit{Code: exitKilled, Reason: reason, Message: message, Started: started, At: at})
	}
}

// container returns the pod's container with that id, or nil.
func (p *pod) container(id string) *container {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.containers[id]
}
