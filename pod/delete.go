package pod

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Delete removes the pod's containers, sandboxes, volumes and logs. What is gone already
// is no error. It must not be called while Run runs.
func (p *Pod) Delete(ctx context.Context) error {
	if err := p.remove(ctx); err != nil {
		return fmt.Errorf("delete pod %s: %w", p.pod.Name, err)
	}
	if err := p.unmount(); err != nil {
		return fmt.Errorf("delete pod %s: %w", p.pod.Name, err)
	}
	for _, dir := range []string{p.options.LogDir, p.options.MessageDir} {
		if dir == "" {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("delete pod %s: %w", p.pod.Name, err)
		}
	}
	return nil
}

func (p *Pod) remove(ctx context.Context) error {
	sandboxes, err := p.sandboxes(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, sandbox := range sandboxes {
		if err := p.options.Runtime.StopPodSandbox(ctx, sandbox.GetId()); err != nil && !notFound(err) {
			errs = append(errs, fmt.Errorf("stop sandbox %s: %w", sandbox.GetId(), err))
		}
	}
	containers, err := p.listContainers(ctx)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, container := range containers {
		if err := p.options.Runtime.RemoveContainer(ctx, container.GetId()); err != nil && !notFound(err) {
			errs = append(errs, fmt.Errorf("remove container %s: %w", container.GetId(), err))
		}
	}
	for _, sandbox := range sandboxes {
		if err := p.options.Runtime.RemovePodSandbox(ctx, sandbox.GetId()); err != nil && !notFound(err) {
			errs = append(errs, fmt.Errorf("remove sandbox %s: %w", sandbox.GetId(), err))
		}
	}
	return errors.Join(errs...)
}
