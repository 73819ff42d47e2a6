package manager

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod/manager/logs"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// OutputOptions select a container's output.
type OutputOptions struct {
	Follow bool // until the pod has ended
	// OneRun ends Follow with the container's run, as a kubelet does.
	OneRun bool
	// Whole starts with the container's first run, otherwise the newest. With Follow no output is missed: a container
	// that writes faster than the client reads waits, until its pod must end.
	Whole    bool
	Previous bool      // only the run of Previous
	Tail     int64     // start with this many existing lines; less than 0: all
	Since    time.Time // skip earlier lines
}

// Output passes a container's output to out, one run after the other, in order. The error is errdefs.ErrNotFound if the
// previous run has no log.
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
		return errclass.With(errdefs.ErrNotFound, err)
	}
	if from.There {
		return r.Drain()
	}
	if o.Whole {
		defer p.readers.add(r)()
	}
	return p.follow(ctx, dir, container, r, o.OneRun)
}

// readers must not miss output of the containers.
type readers struct {
	mu  sync.Mutex
	all map[*logs.Reader]bool
}

// add protects a reader from missing output until the returned function is called.
func (rs *readers) add(r *logs.Reader) (stop func()) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.all == nil {
		rs.all = map[*logs.Reader]bool{}
	}
	rs.all[r] = true
	return func() {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		delete(rs.all, r)
	}
}

// unread reports whether a rotation of the log would lose output for a reader.
func (rs *readers) unread(path string) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for r := range rs.all {
		if r.Unread(path) {
			return true
		}
	}
	return false
}

// follow reads a container's output until its pod has ended, or with oneRun until its run has ended.
func (p *Pod) follow(ctx context.Context, dir, container string, r *logs.Reader, oneRun bool) error {
	written, stop, err := p.m.logs.Add(p.m.ctx, dir)
	if err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	defer stop()
	for {
		// Read the state before the file: the file then contains all output from before a container's end.
		_, changed := p.Watch()
		over := p.HasEnded()
		status := p.Status()
		now := podstatus.Named(&status, container)
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

// hasRun reports whether the newest run of a container has ended.
func hasRun(c *corev1.ContainerStatus) bool {
	return c.State.Running == nil && (c.State.Terminated != nil || c.LastTerminationState.Terminated != nil)
}

// Previous returns the number of a container's previous run: the newest run of a container that waits for a restart,
// else the one before. Less than 0 means none.
func Previous(status corev1.PodStatus, container string) int {
	c := podstatus.Named(&status, container)
	if c.State.Waiting != nil && c.LastTerminationState.Terminated != nil {
		return int(c.RestartCount)
	}
	return int(c.RestartCount) - 1
}

// Restarts returns how often a container of any kind was restarted.
func Restarts(status corev1.PodStatus, container string) int {
	return int(podstatus.Named(&status, container).RestartCount)
}

// LogUsage returns the disk usage of a container's logs, in bytes, and their number of files.
func (p *Pod) LogUsage(container string) (bytes, files uint64) {
	return logs.Usage(filepath.Join(p.dir, logsDir, container))
}
