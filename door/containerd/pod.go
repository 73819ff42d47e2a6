package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/door/containerd/bootstrap"
	"github.com/bulkhead-project/bulkhead/door/containerd/podconfig"
	"github.com/bulkhead-project/bulkhead/door/containerd/stdio"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/undo"
)

// pod is the pod of the Sandbox API. Its process stands for a pod without a pause container. A pod has no events, because
// containerd publishes them itself.
type pod struct {
	task
	files     podconfig.Files
	createdAt time.Time
}

// current returns the pod, or nil.
func (s *Services) current() *pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pod
}

// podOf returns the pod with an id, once it is created.
func (s *Services) podOf(id string) (*pod, error) {
	p := s.current()
	if p == nil || p.container != id || !p.known() {
		return nil, fmt.Errorf("sandbox %.80q: %w", id, errdefs.ErrNotFound)
	}
	return p, nil
}

// addPodFiles adds the pod's files to the bundle of a container, if there is a pod.
func (s *Services) addPodFiles(bundle string) error {
	if p := s.current(); p != nil && p.known() {
		return p.files.AddTo(bundle)
	}
	return nil
}

// replace makes p the pod in place of old.
func (s *Services) replace(old, p *pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pod != old {
		return false
	}
	s.pod = p
	return true
}

// createPod creates the pod and its VM.
func (s *Services) createPod(ctx context.Context, r *sandboxv1.CreateSandboxRequest) (err error) {
	switch {
	case !bootstrap.ValidID(r.SandboxID):
		return fmt.Errorf("%w: id %.80q", errdefs.ErrInvalidArgument, r.SandboxID)
	case !filepath.IsAbs(r.BundlePath):
		return fmt.Errorf("%w: bundle %.200q: must be an absolute path", errdefs.ErrInvalidArgument, r.BundlePath)
	case len(r.Rootfs) > 0:
		return fmt.Errorf("%w: a root file system of a sandbox: the pod runs no pause container", errUnsupported)
	}
	config, err := podconfig.Parse(r.Options)
	if err != nil {
		return err
	}
	if config.UserNamespace {
		return fmt.Errorf("%w: a user namespace for a pod with sandboxer = \"shim\" (use \"podsandbox\")", errUnsupported)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	p := &pod{task: task{
		process: newProcess(r.SandboxID, r.SandboxID, stdio.Names{}), bundle: r.BundlePath, options: s.o.Defaults, cancel: cancel,
	}}
	done, err := p.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	if !s.replace(nil, p) {
		return fmt.Errorf("sandbox %s: %w", r.SandboxID, errdefs.ErrAlreadyExists)
	}
	if err := s.makePod(ctx, p, config, r); err != nil {
		s.replace(p, nil)
		return fmt.Errorf("create sandbox %s: %w", r.SandboxID, err)
	}
	s.wg.Go(func() {
		if exit, ok := s.await(&p.process); ok {
			s.record(&p.task, exit)
			p.ended(exit)
		}
	})
	return nil
}

// makePod writes the pod's bundle and files and creates its VM. On an error it leaves nothing behind but files, which
// containerd removes with the bundle.
func (s *Services) makePod(ctx context.Context, p *pod, config podconfig.Config, r *sandboxv1.CreateSandboxRequest) (err error) {
	var undos undo.Stack
	defer undos.OnError(ctx, &err)
	full := config.Spec(p.container, r.NetnsPath, s.o.Namespace, p.options.KeepsAnnotation)
	maps.Copy(full.Annotations, r.Annotations) // the client's own, not the pod's
	spec, err := json.Marshal(full)
	if err != nil {
		return err
	}
	path := filepath.Join(p.bundle, "config.json")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) { // a client of the Sandbox API may have its own
		if err := atomicfile.Write(path, spec, 0o600, atomicfile.Volatile); err != nil {
			return err
		}
	}
	undos.Push("files", func(context.Context) error { return p.files.Remove() })
	if p.files, err = config.WriteFiles(p.bundle); err != nil {
		return err
	}
	handle, err := s.o.Runtime.Create(ctx, p.createOptions(&stdio.Streams{}))
	if err != nil {
		return err
	}
	p.createdAt = time.Now()
	p.made(tasktypes.Status_CREATED, handle, nil)
	s.record(&p.task, Exit{})
	return nil
}

// startPod starts the pod.
func (s *Services) startPod(ctx context.Context, p *pod) error {
	return s.detach(ctx, func(ctx context.Context) error {
		done, err := p.take(ctx)
		if err != nil {
			return err
		}
		defer done()
		if status, _ := p.state(); status != tasktypes.Status_CREATED {
			return fmt.Errorf("start sandbox %s, which is %s: %w", p.container, word(status), errdefs.ErrFailedPrecondition)
		}
		if err := s.o.Runtime.Start(ctx, p.container); err != nil {
			return fmt.Errorf("start sandbox %s: %w", p.container, err)
		}
		p.set(tasktypes.Status_RUNNING)
		return nil
	})
}

// stopPod kills the pod's containers and then its VM, and waits for their ends. It is idempotent.
func (s *Services) stopPod(ctx context.Context, p *pod) error {
	s.mu.Lock()
	processes := make([]*process, 0, len(s.tasks)+1)
	for _, t := range s.tasks {
		processes = append(processes, &t.process)
	}
	s.mu.Unlock()
	for _, q := range append(processes, &p.process) {
		status, handle := q.state()
		if handle == nil || status == tasktypes.Status_STOPPED {
			continue
		}
		if err := handle.Signal(ctx, unix.SIGKILL); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
			s.o.Log.Warn("kill a container of the pod", "task", q.container, "error", err) // the VM's end kills it
		}
	}
	if err := p.awaitEnd(ctx); err != nil {
		return fmt.Errorf("stop sandbox %s: %w", p.container, err)
	}
	return nil
}

// removePod stops the pod and removes it, its containers first. A creation that is under way undoes itself.
func (s *Services) removePod(ctx context.Context, p *pod) error {
	p.cancel()
	return s.detach(ctx, func(ctx context.Context) error {
		done, err := p.take(ctx)
		if err != nil {
			return err
		}
		defer done()
		if !p.known() || s.current() != p {
			return nil
		}
		if err := s.stopPod(ctx, p); err != nil {
			return err
		}
		s.mu.Lock()
		tasks := make([]*task, 0, len(s.tasks))
		for _, t := range s.tasks {
			tasks = append(tasks, t)
		}
		s.mu.Unlock()
		for _, t := range tasks {
			if err := s.removeTask(ctx, t); err != nil {
				return err
			}
		}
		if err := s.o.Runtime.Delete(ctx, p.container); err != nil {
			return fmt.Errorf("delete sandbox %s: %w", p.container, err)
		}
		if err := p.files.Remove(); err != nil {
			return err
		}
		s.replace(p, nil)
		return nil
	})
}

// removeTask removes a container of a pod that was stopped.
func (s *Services) removeTask(ctx context.Context, t *task) error {
	if t.cancel(); !t.known() {
		return nil
	}
	done, err := t.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := t.awaitEnd(ctx); err != nil {
		return fmt.Errorf("task %s has not ended: %w", t.container, err)
	}
	if err := s.deleteTask(ctx, t); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
		return err
	}
	return nil
}
