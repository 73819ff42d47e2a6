package pod

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/pod/instance"
	"github.com/bulkhead-project/bulkhead/pod/logs"
)

// observe reads back from the CRI what there is of the pod. It is all that the loop waits for.
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
			c.keep(known) // launched takes over the new instance
			continue
		}
		if err := r.observeContainer(ctx, c, listed, known); err != nil {
			return err
		}
	}
	r.exits = known
	// After its containers: what has ended with a machine must not be started
	// again in it.
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
	r.hear()
	return nil
}

// hear takes down what those have said last that have ended since.
func (r *run) hear() {
	words := make(map[string]string)
	for _, c := range r.containers {
		for _, i := range []*instance.Instance{c.newest, c.previous} {
			if !i.Exited() {
				continue
			}
			text, heard := r.words[i.ID()]
			if !heard {
				text = logs.LastWords(&r.o.Options, c.spec, i.Restarts, i.Status.GetExitCode() != 0)
			}
			words[i.ID()] = text
		}
	}
	r.words = words
}

// observeContainer finds the newest instances of c. Those older than the last but one are for sweep.
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
		// What was removed behind our back still counts as a restart.
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

// keep adds to known what is known of c's instances.
func (c *container) keep(known map[string]*runtimeapi.ContainerStatus) {
	for _, i := range []*instance.Instance{c.newest, c.previous} {
		if i.Exited() {
			known[i.ID()] = i.Status
		}
	}
}
