package run

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/calls"
	"github.com/bulkhead-project/bulkhead/door/run/refs"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod/podapi"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// debugTimeout bounds the start of an ephemeral container, including the pull of its image.
const debugTimeout = 10 * time.Minute

// debug adds an ephemeral container to a running pod and answers when the container has started.
func (s *server) debug(r *http.Request) (any, error) {
	p, err := refs.Find(s.pods, r.PathValue("ref"))
	if err != nil {
		return nil, err
	}
	e := entryOf(p)
	req, err := calls.Decode[api.DebugRequest](r)
	if err != nil {
		return nil, err
	}
	if err := e.Damaged(); err != nil {
		return nil, err
	}
	getenv, err := calls.Environment(r, s.ownEnvironment)
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
