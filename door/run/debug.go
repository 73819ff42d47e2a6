package run

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/podapi"
)

// debugTimeout bounds the start of an ephemeral container, its image included.
const debugTimeout = 10 * time.Minute

// debug adds an ephemeral container to a pod that runs and answers when it has
// been started.
func (s *server) debug(r *http.Request) (any, error) {
	e, err := s.pods.find(r.PathValue("ref"))
	if err != nil {
		return nil, err
	}
	req, err := decode[api.DebugRequest](r)
	if err != nil {
		return nil, err
	}
	if cause, yes := e.rec.damaged(); yes {
		return nil, class(api.ErrConflict, fmt.Errorf("pod %s: %s", e.key(), cause))
	}
	getenv, err := s.environment(r)
	if err != nil {
		return nil, err
	}
	e.reads(getenv)
	spec := debugger(e.rec.Pod, req)
	if err := podapi.Ephemeral(&spec); err != nil {
		return nil, class(api.ErrInvalid, err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), debugTimeout)
	defer cancel()
	if err := e.debug(ctx, spec); err != nil {
		return nil, debugClass(err)
	}
	return api.Debugged{Container: spec.Name}, nil
}

// debugger is the container that is asked for: where nothing else is said under
// a name that is free, of the image of the container that it is to look at.
func debugger(p *corev1.Pod, req api.DebugRequest) corev1.EphemeralContainer {
	if req.Name == "" {
		req.Name = "debugger-" + strings.ToLower(rand.Text()[:5])
	}
	if req.Image == "" {
		req.Image = p.Spec.Containers[0].Image
		for _, c := range append(p.Spec.InitContainers[:len(p.Spec.InitContainers):len(p.Spec.InitContainers)], p.Spec.Containers...) {
			if c.Name == req.Target {
				req.Image = c.Image
			}
		}
	}
	return corev1.EphemeralContainer{
		TargetContainerName: req.Target,
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: req.Name, Image: req.Image, Command: req.Command, TTY: req.TTY,
			Stdin: req.Stdin, StdinOnce: req.Stdin && !req.TTY, // what is piped in has an end
		},
	}
}

// debug writes the container down before it is made: the next engine has to
// know it.
func (e *entry) debug(ctx context.Context, spec corev1.EphemeralContainer) error {
	p := e.pod()
	if err := p.CanDebug(spec); err != nil {
		return err
	}
	if err := e.note(spec); err != nil {
		return fmt.Errorf("debug pod %s: %w", e.key(), err)
	}
	return p.Debug(ctx, spec)
}

// note writes an ephemeral container down, whose name is one of a kind: the pod
// does not know yet of one that another request has just written down.
func (e *entry) note(spec corev1.EphemeralContainer) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.rec.Ephemeral
	if slices.ContainsFunc(before, func(other corev1.EphemeralContainer) bool { return other.Name == spec.Name }) {
		return fmt.Errorf("container %s %w", spec.Name, pod.ErrName)
	}
	e.rec.Ephemeral = append(before[:len(before):len(before)], spec)
	if err := e.save(); err != nil {
		e.rec.Ephemeral = before
		return err
	}
	return nil
}

// spec is the pod with the containers that were added to it, as it was resized.
func (e *entry) spec() *corev1.Pod {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rec.spec()
}

// spec is e.spec for who holds the lock or is alone with the record.
func (r *record) spec() *corev1.Pod {
	if len(r.Ephemeral)+len(r.Resources) == 0 {
		return r.Pod
	}
	p := r.Pod.DeepCopy()
	r.resized(p)
	p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, r.Ephemeral...)
	return p
}

func debugClass(err error) error {
	switch {
	case errors.Is(err, pod.ErrName), errors.Is(err, pod.ErrEnded):
		return class(api.ErrConflict, err)
	case errors.Is(err, pod.ErrTarget):
		return class(api.ErrNotFound, err)
	}
	return err
}
