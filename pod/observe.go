package pod

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// observe reads back from the CRI what there is of the pod.
func (r *run) observe(ctx context.Context) error {
	sandboxes, err := r.p.sandboxes(ctx)
	if err != nil {
		return err
	}
	listed, err := r.p.listContainers(ctx)
	if err != nil {
		return err
	}
	known := make(map[string]*runtimeapi.ContainerStatus)
	for _, c := range r.containers {
		if err := r.observeContainer(ctx, c, listed, known); err != nil {
			return err
		}
	}
	r.exits = known
	// After its containers: what has ended with a machine must not be started
	// again in it.
	r.sandbox = nil
	if len(sandboxes) > 0 {
		status, err := r.o.Runtime.PodSandboxStatus(ctx, sandboxes[0].GetId(), false)
		if err != nil && !notFound(err) {
			return fmt.Errorf("status of sandbox %s: %w", sandboxes[0].GetId(), err)
		}
		r.sandbox = status.GetStatus()
		r.resumeStart()
	}
	r.sweep(ctx, sandboxes)
	r.hear()
	return nil
}

// hear takes down what those have said last that have ended since.
func (r *run) hear() {
	words := make(map[string]string)
	for _, c := range r.containers {
		for _, i := range []*instance{c.newest, c.previous} {
			if !i.exited() {
				continue
			}
			text, heard := r.words[i.id()]
			if !heard {
				text = lastWords(r.o, c.spec, i)
			}
			words[i.id()] = text
		}
	}
	r.words = words
}

// observeContainer finds the newest instances of c, and removes those that are
// older than the last but one.
func (r *run) observeContainer(ctx context.Context, c *container, listed []*runtimeapi.Container, known map[string]*runtimeapi.ContainerStatus) error {
	var instances []*instance
	for _, item := range listed {
		if item.GetLabels()[labelContainerName] != c.spec.Name {
			continue
		}
		id := item.GetId()
		status := r.exits[id]
		if status == nil {
			response, err := r.o.Runtime.ContainerStatus(ctx, id, false)
			if notFound(err) {
				continue
			}
			if err != nil {
				return fmt.Errorf("status of container %s: %w", c.spec.Name, err)
			}
			status = response.GetStatus()
		}
		if status.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			known[id] = status
		}
		instances = append(instances, &instance{
			sandbox: item.GetPodSandboxId(), restarts: restartCount(item), status: status,
		})
	}
	slices.SortStableFunc(instances, func(a, b *instance) int {
		return cmp.Or(-cmp.Compare(a.restarts, b.restarts), -cmp.Compare(a.status.GetCreatedAt(), b.status.GetCreatedAt()))
	})
	if len(instances) == 0 {
		// What was removed behind our back still counts as a restart.
		if c.newest != nil && c.newest.status.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
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
		status := c.newest.status
		c.restart.resume(c.newest.restarts, nano(status.GetStartedAt()), nano(status.GetFinishedAt()))
		if r.o.Last[c.newest.id()].Ending {
			c.failing = c.newest.id()
		}
	}
	for _, old := range instances[min(2, len(instances)):] {
		if err := r.o.Runtime.RemoveContainer(ctx, old.status.GetId()); err != nil && !notFound(err) {
			r.p.log.Warn("cannot remove an old container", "container", c.spec.Name, "id", old.status.GetId(), "error", err)
		}
	}
	return nil
}

// restartCount reads the kubelet's annotation, else the CRI's attempt.
func restartCount(item *runtimeapi.Container) int32 {
	if count, err := strconv.ParseInt(item.GetAnnotations()[annotationRestartCount], 10, 32); err == nil {
		return int32(count)
	}
	return int32(item.GetMetadata().GetAttempt())
}

// sandboxes are the pod's, the newest first.
func (p *Pod) sandboxes(ctx context.Context) ([]*runtimeapi.PodSandbox, error) {
	list, err := p.options.Runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: p.selector()})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes of pod %s: %w", p.pod.Name, err)
	}
	slices.SortStableFunc(list, func(a, b *runtimeapi.PodSandbox) int {
		return cmp.Or(-cmp.Compare(a.GetMetadata().GetAttempt(), b.GetMetadata().GetAttempt()), -cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()))
	})
	return list, nil
}

func (p *Pod) listContainers(ctx context.Context) ([]*runtimeapi.Container, error) {
	list, err := p.options.Runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: p.selector()})
	if err != nil {
		return nil, fmt.Errorf("list containers of pod %s: %w", p.pod.Name, err)
	}
	return list, nil
}

func (p *Pod) selector() map[string]string {
	return map[string]string{labelPodUID: string(p.pod.UID)}
}
