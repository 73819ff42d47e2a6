package pod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/bulkhead-project/bulkhead/pod/instance"
	"github.com/bulkhead-project/bulkhead/pod/logs"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// Stop ends the pod. Every container gets TERM (or its image's stop signal), and KILL after grace; a negative grace is
// the pod's own. Stop needs a Run. It returns when Run has ended the pod, or with ctx's error; the request then remains
// in force. A later Stop can only shorten the grace.
func (p *Pod) Stop(ctx context.Context, grace time.Duration) error {
	if grace < 0 {
		grace = p.grace()
	}
	p.mu.Lock()
	if p.stop == nil || grace < *p.stop {
		p.stop = &grace
	}
	p.mu.Unlock()
	p.Changed()
	for {
		status, changed := p.Watch()
		if podstatus.Ended(&status) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("stop pod %s: %w", p.pod.Name, ctx.Err())
		}
	}
}

// Kill is Stop without grace.
func (p *Pod) Kill(ctx context.Context) error { return p.Stop(ctx, 0) }

func (p *Pod) grace() time.Duration { return podspec.Grace(&p.pod.Spec) }

func (p *Pod) stopping() *time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stop
}

// Delete removes the pod's containers, sandboxes, volumes and logs. It ignores those that do not exist. It must not be
// called during Run.
func (p *Pod) Delete(ctx context.Context) error {
	_, err := p.delete(ctx, false)
	return err
}

// Clear is Delete for a pod that will run again. Its newest sandbox, if any, stays, stopped, and with it the pod's
// emptyDirs for the next sandbox. The logs become the beginning of the next run's logs. The next run's Options.Earlier
// is the sandbox that Clear returns.
func (p *Pod) Clear(ctx context.Context) (sandbox string, err error) { return p.delete(ctx, true) }

// Free removes the pod's containers and sandboxes with the disk space that they use. The volumes of files and the logs
// stay. It must not be called during Run.
func (p *Pod) Free(ctx context.Context) error {
	if _, err := p.remove(ctx, false); err != nil {
		return fmt.Errorf("free the disk space of pod %s: %w", p.pod.Name, err)
	}
	return nil
}

func (p *Pod) delete(ctx context.Context, keep bool) (kept string, err error) {
	if kept, err = p.remove(ctx, keep); err != nil {
		return "", fmt.Errorf("delete pod %s: %w", p.pod.Name, err)
	}
	if err := errors.Join(p.unclaim(ctx), p.unmount()); err != nil {
		return "", fmt.Errorf("delete pod %s: %w", p.pod.Name, err)
	}
	if keep && p.options.LogDir != "" {
		err = logs.PrepareRun(p.options.LogDir)
	} else {
		err = os.RemoveAll(p.options.LogDir)
	}
	if err := errors.Join(err, os.RemoveAll(p.options.MessageDir)); err != nil {
		return "", fmt.Errorf("delete pod %s: %w", p.pod.Name, err)
	}
	return kept, nil
}

// remove removes the containers and sandboxes; with keep, all sandboxes but the newest.
func (p *Pod) remove(ctx context.Context, keep bool) (kept string, err error) {
	sandboxes, err := instance.Sandboxes(ctx, p.options.Runtime, p.pod.UID)
	if err != nil {
		return "", err
	}
	var errs []error
	for _, sandbox := range sandboxes {
		errs = append(errs, instance.Unless(p.options.Runtime.StopPodSandbox(ctx, sandbox.GetId()), "stop sandbox", sandbox.GetId()))
	}
	containers, err := instance.Containers(ctx, p.options.Runtime, p.pod.UID)
	if err != nil {
		return "", errors.Join(append(errs, err)...)
	}
	for _, container := range containers {
		errs = append(errs, instance.Unless(p.options.Runtime.RemoveContainer(ctx, container.GetId()), "remove container", container.GetId()))
	}
	if keep && len(sandboxes) > 0 {
		kept, sandboxes = sandboxes[0].GetId(), sandboxes[1:]
	}
	for _, sandbox := range sandboxes {
		errs = append(errs, instance.Unless(p.options.Runtime.RemovePodSandbox(ctx, sandbox.GetId()), "remove sandbox", sandbox.GetId()))
	}
	return kept, errors.Join(errs...)
}
