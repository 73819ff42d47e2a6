package run

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod/podapi"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// defaultContainer is kubectl's annotation with the name of the container that commands use if none is named.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// allContainers returns the names of all containers of a pod in their start order. Ephemeral containers come last.
func allContainers(p *corev1.Pod) []string {
	var names []string
	for c := range podspec.Every(&p.Spec) {
		names = append(names, c.Name)
	}
	return names
}

// findContainer finds a container by its name or an unambiguous prefix. An empty ref means the pod's default
// container.
func findContainer(p *corev1.Pod, ref string) (string, error) {
	names := allContainers(p)
	if ref == "" {
		if ref = p.Annotations[defaultContainer]; ref == "" {
			return p.Spec.Containers[0].Name, nil
		}
	}
	var found []string
	for _, name := range names {
		if name == ref {
			return name, nil
		}
		if strings.HasPrefix(name, ref) {
			found = append(found, name)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("container %q of pod %s/%s: %w: it has %v", ref, p.Namespace, p.Name, errdefs.ErrNotFound, names)
	}
	return "", fmt.Errorf("container %q of pod %s/%s: %w: it matches %s",
		ref, p.Namespace, p.Name, errclass.ErrAmbiguous, strings.Join(found, " or "))
}

// container finds a container by ref and returns its name and the id of its newest instance.
func (e *entry) container(ref string) (name, id string, err error) {
	if err := e.Damaged(); err != nil {
		return "", "", err
	}
	if name, err = findContainer(e.Spec(), ref); err != nil {
		return "", "", err
	}
	id, ok := e.Container(name)
	if !ok {
		err := fmt.Errorf("container %s of pod %s has not been started (bulkhead events %s shows why)", name, e.Key(), e.Name())
		return "", "", errclass.With(errdefs.ErrConflict, err)
	}
	return name, id, nil
}

// orPaused replaces err with an explanation if the pod is paused.
func (e *entry) orPaused(err error) error {
	if _, paused := e.s.engine.Pauses(e.Sandbox()); paused {
		return errclass.New(errdefs.ErrConflict, "pod %s is paused: resume it with bulkhead resume %s", e.Key(), e.Name())
	}
	return err
}

func containerNames(p *corev1.Pod) []string {
	var names []string
	for _, c := range p.Spec.Containers {
		names = append(names, c.Name)
	}
	return names
}

// debugTimeout bounds the start of an ephemeral container, including the pull of its image.
const debugTimeout = 10 * time.Minute

// debug adds an ephemeral container to a running pod and answers when the container has started.
func (s *server) debug(r *http.Request) (any, error) {
	e, err := s.find(r.PathValue("ref"))
	if err != nil {
		return nil, err
	}
	req, err := decode[api.DebugRequest](r)
	if err != nil {
		return nil, err
	}
	if err := e.Damaged(); err != nil {
		return nil, err
	}
	getenv, err := s.environment(r)
	if err != nil {
		return nil, err
	}
	spec := debugger(e.Original(), req)
	if err := podapi.Ephemeral(&spec); err != nil {
		return nil, errclass.With(errdefs.ErrInvalidArgument, err)
	}
	e.debugs(spec.Image, getenv)
	ctx, cancel := context.WithTimeout(r.Context(), debugTimeout)
	defer cancel()
	if err := e.Debug(ctx, spec, runtimev1.Size(req.Size)); err != nil {
		return nil, err
	}
	return api.Debugged{Container: spec.Name}, nil
}

// debugger returns the requested container. The default name has a random suffix. The default image is the
// target's, or that of the pod's first container.
func debugger(p *corev1.Pod, req api.DebugRequest) corev1.EphemeralContainer {
	if req.Name == "" {
		req.Name = "debugger-" + strings.ToLower(rand.Text()[:5])
	}
	if req.Image == "" {
		req.Image = p.Spec.Containers[0].Image
		for c := range podspec.All(&p.Spec) {
			if c.Name == req.Target {
				req.Image = c.Image
			}
		}
	}
	return corev1.EphemeralContainer{
		TargetContainerName: req.Target,
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: req.Name, Image: req.Image, Command: req.Command, TTY: req.TTY,
			Stdin: req.Stdin, StdinOnce: req.Stdin && !req.TTY, // piped input ends
		},
	}
}
