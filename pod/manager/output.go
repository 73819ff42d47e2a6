package manager

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod/manager/logs"
)

// OutputOptions choose what of a container's output is given.
type OutputOptions struct {
	Follow bool // until the pod has ended
	// OneRun ends what is followed with the container's run, as a kubelet does.
	OneRun bool
	// Whole is from the container's first run on, else the newest only. With Follow nothing of it is missed:
	// a container that writes faster than is read waits, until its pod is to end.
	Whole    bool
	Previous bool      // the run that Previous says
	Tail     int64     // so many lines of what is there; less than 0: all
	Since    time.Time // nothing from before
}

// Output gives out what a container has written, one run after the other, in order.
// The error is of ErrNotFound where no previous run is kept.
func (p *Pod) Output(ctx context.Context, container string, o OutputOptions, out func(logs.Line) error) error {
	dir := filepath.Join(p.dir, logsDir, container)
	if err := dirs.Ensure(dir, 0o700); err != nil {
		return err
	}
	from := logs.Options{Tail: o.Tail, Since: o.Since, There: o.Previous || !o.Follow}
	switch {
	case o.Previous:
		from.Run = Previous(p.Status(), container)
	case !o.Whole:
		from.Run = Restarts(p.Status(), container)
	}
	r := logs.New(dir, from, out)
	defer r.Close()
	if o.Previous && (from.Run < 0 || !r.Exists()) {
		err := fmt.Errorf("no output of a previous run of container %s of pod %s is kept", container, p.Key())
		return errclass.With(ErrNotFound, err)
	}
	if from.There {
		return r.Drain()
	}
	if o.Whole {
		defer p.read(r)()
	}
	return p.follow(ctx, dir, container, r, o.OneRun)
}

// read has a reader miss nothing until the returned function is called.
func (p *Pod) read(r *logs.Reader) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readers[r] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.readers, r)
	}
}

// unread tells of a log whether a reader would miss something if it were begun anew. Of a pod that is to
// end nobody is waited for.
func (p *Pod) unread(path string) bool {
	if p.ending.Load() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.readers {
		if r.Unread(path) {
			return true
		}
	}
	return false
}

// follow reads what a container writes until its pod has ended, or with oneRun its run.
func (p *Pod) follow(ctx context.Context, dir, container string, r *logs.Reader, oneRun bool) error {
	written, stop, err := p.m.logs.Add(p.m.ctx, dir)
	if err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	defer stop()
	for {
		// Looked at before the file is read: what was written before a
		// container's end is in the file then.
		_, changed := p.Watch()
		over := p.HasEnded()
		now := ContainerStatus(p.Status(), container)
		if err := r.Drain(); err != nil {
			return err
		}
		next := int(now.RestartCount) > r.Run()
		if over && !next || oneRun && (next || hasRun(&now)) {
			return nil
		}
		if next {
			r.Next()
			continue
		}
		select {
		case <-written:
		case <-changed:
		case <-p.Ended():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hasRun tells whether the newest run of a container has ended.
func hasRun(c *corev1.ContainerStatus) bool {
	return c.State.Running == nil && (c.State.Terminated != nil || c.LastTerminationState.Terminated != nil)
}

// ContainerStatus is what a pod's status says of a container of any kind, empty for
// one that it does not name.
func ContainerStatus(status corev1.PodStatus, name string) corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{
		status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses,
	} {
		for _, c := range list {
			if c.Name == name {
				return c
			}
		}
	}
	return corev1.ContainerStatus{}
}

// Previous is the number of a container's previous run: the one before the newest, or the newest of a container that waits to run
// again. Less than 0 is none.
func Previous(status corev1.PodStatus, container string) int {
	c := ContainerStatus(status, container)
	if c.State.Waiting != nil && c.LastTerminationState.Terminated != nil {
		return int(c.RestartCount)
	}
	return int(c.RestartCount) - 1
}

// Restarts is how often a container of any kind was started again.
func Restarts(status corev1.PodStatus, container string) int {
	return int(ContainerStatus(status, container).RestartCount)
}
