package run

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod/podapi"
)

// debugTimeout bounds the start of an ephemeral container, its image included.
const debugTimeout = 10 * time.Minute

// debug adds an ephemeral container to a pod that runs and answers when it has
// been started.
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
	e.reads(getenv)
	spec := debugger(e.Given(), req)
	if err := podapi.Ephemeral(&spec); err != nil {
		return nil, errclass.With(api.ErrInvalid, err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), debugTimeout)
	defer cancel()
	if err := e.Debug(ctx, spec); err != nil {
		return nil, err
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
