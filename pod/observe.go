package pod

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/pod/instance"
	"github.com/bulkhead-project/bulkhead/pod/logs"
)

// observe reads back the pod's state from the CRI. The loop waits for no other call.
func (r *run) observe(runCtx context.Context) error {
	ctx, cancel := context.WithTimeout(runCtx, observeDeadline)
	defer cancel()
	sandboxes, err := instance.Sandboxes(ctx, r.o.Runtime, r.pod.UID)
	if err != nil {
		return err
	}
	listed, err := instance.Containers(ctx, r.o.Runtime, r.pod.UID)
	if err != nil {
		return err
	}
	known := make(map[string]*runtimeapi.ContainerStatus)
	r.old = nil
	for _, c := range r.containers {
		if r.isStarting(c) {
			c.keep(known) // launched records the new instance
			continue
		}
		if err := r.observeContainer(ctx, c, listed, known); err != nil {
			return err
		}
	}
	r.exits = known
	// Read the sandbox after its containers: containers that ended with a VM must not be restarted in it.
	r.sandbox, r.attempt = nil, 0
	if len(sandboxes) > 0 {
		r.attempt = sandboxes[0].GetMetadata().GetAttempt() + 1
	}
	if len(sandboxes) > 0 && sandboxes[0].GetId() != r.o.Earlier {
		status, err := r.o.Runtime.PodSandboxStatus(ctx, sandboxes[0].GetId(), false)
		if err != nil && !instance.Gone(err) {
			return fmt.Errorf("status of sandbox %s: %w", sandboxes[0].GetId(), err)
		}
		r.sandbox = status.GetStatus()
		r.turn.awaited = false
		r.resumeStart()
	}
	r.sweep(runCtx, sandboxes)
	r.readLastWords()
	return nil
}

// readLastWords reads the last words of containers that have ended.
func (r *run) readLastWords() {
	words := make(map[string]string)
	for _, c := range r.containers {
		for _, i := range []*instance.Instance{c.newest, c.previous} {
			if !i.Exited() {
				continue
			}
			text, heard := r.words[i.ID()]
			if !heard {
				text = logs.TerminationMessage(&r.o.Options, c.spec, i.Restarts, i.Status.GetExitCode() != 0)
			}
			words[i.ID()] = text
		}
	}
	r.words = words
}

// observeContainer finds the newest instances of c. It leaves all but the newest two to sweep.
func (r *run) observeContainer(
	ctx context.Context, c *container, listed []*runtimeapi.Container, known map[string]*runtimeapi.ContainerStatus,
) error {
	instances, err := instance.Of(ctx, r.o.Runtime, listed, c.spec.Name, r.exits)
	if err != nil {
		return err
	}
	for _, i := range instances {
		if i.Exited() {
			known[i.ID()] = i.Status
		}
	}
	if len(instances) == 0 {
		// An instance that others removed still counts for restarts.
		if c.newest != nil && c.newest.Status.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			return nil
		}
		c.newest = nil
		return nil
	}
	c.newest = instances[0]
	if len(instances) > 1 {
		c.previous = instances[1]
	}
	if !c.resumed {
		c.resumed, c.tried = true, true
		c.restart.Resume(c.newest.Restarts, c.newest.StartedAt(), c.newest.FinishedAt())
		if r.o.Last[c.newest.ID()].Ending {
			c.failing = c.newest.ID()
		}
	}
	for _, i := range instances[min(2, len(instances)):] {
		r.old = append(r.old, i.ID())
	}
	return nil
}

// keep adds the exits of c's instances to known.
func (c *container) keep(known map[string]*runtimeapi.ContainerStatus) {
	for _, i := range []*instance.Instance{c.newest, c.previous} {
		if i.Exited() {
			known[i.ID()] = i.Status
		}
	}
}
