package pod

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/pod/instance"
	"github.com/bulkhead-project/bulkhead/pod/logs"
)

// observe reads back the pod's state from the CRI. The loop waits for no other call.
func (r *run) observe(runCtx context.Context) error {
	ctx, cancel := context.WithTimeout(runCtx, observeDeadline)
	defer cancel()
	sandboxes, err := instance.Sandboxes(ctx, r.o.Runtime, r.Pod.UID)
	if err != nil {
		return err
	}
	listed, err := instance.Containers(ctx, r.o.Runtime, r.Pod.UID)
	if err != nil {
		return err
	}
	r.old = nil
	for _, c := range r.Containers {
		if r.Starting != nil && r.Starting.Container == c {
			continue // launched records the new instance
		}
		if err := r.observeContainer(ctx, c, listed); err != nil {
			return err
		}
	}
	r.readExits()
	// Read the sandbox after its containers: containers that ended with a VM must not be restarted in it.
	r.Sandbox, r.attempt = nil, 0
	if len(sandboxes) > 0 {
		r.attempt = sandboxes[0].GetMetadata().GetAttempt() + 1
	}
	if len(sandboxes) > 0 && sandboxes[0].GetId() != r.o.Earlier {
		status, err := r.o.Runtime.PodSandboxStatus(ctx, sandboxes[0].GetId(), false)
		if err != nil && !instance.Gone(err) {
			return fmt.Errorf("status of sandbox %s: %w", sandboxes[0].GetId(), err)
		}
		r.Sandbox = status.GetStatus()
		r.Turn.Awaited = false
		r.resumeStart()
	}
	r.sweep(runCtx, sandboxes)
	return nil
}

// readExits remembers the ends of containers, and reads their last words.
func (r *run) readExits() {
	exits, words := make(map[string]*runtimeapi.ContainerStatus), make(map[string]string)
	for _, c := range r.Containers {
		for _, i := range c.Instances() {
			if !i.Exited() {
				continue
			}
			text, heard := r.words[i.ID()]
			if !heard {
				text = logs.TerminationMessage(&r.o.Options, c.Spec, i.Restarts, i.Status.GetExitCode() != 0)
			}
			exits[i.ID()], words[i.ID()] = i.Status, text
		}
	}
	r.exits, r.words = exits, words
}

// observeContainer finds the newest instances of c. It leaves all but the newest two to sweep.
func (r *run) observeContainer(ctx context.Context, c *container, listed []*runtimeapi.Container) error {
	instances, err := instance.Of(ctx, r.o.Runtime, listed, c.Spec.Name, r.exits)
	if err != nil {
		return err
	}
	if len(instances) == 0 {
		if !c.Newest.Exited() { // an instance that others removed still counts for restarts
			c.Newest = nil
		}
		return nil
	}
	c.Newest = instances[0]
	if len(instances) > 1 {
		c.Previous = instances[1]
	}
	c.Sight(time.Now())
	if !c.Resumed {
		c.Resumed, c.Tried = true, true
		began, ended := c.Newest.Status.GetStartedAt(), c.Newest.Status.GetFinishedAt()
		c.Restart.Resume(c.Newest.Restarts, instance.Time(began), instance.Time(ended))
		if r.o.Last[c.Newest.ID()].Ending {
			c.Failing = c.Newest.ID()
		}
	}
	for _, i := range instances[min(2, len(instances)):] {
		r.old = append(r.old, i.ID())
	}
	return nil
}
