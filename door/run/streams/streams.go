// Package streams answers the calls that open streams to containers and VMs, and sends signals.
package streams

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/calls"
	"github.com/bulkhead-project/bulkhead/door/run/refs"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/process"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// Service answers the calls.
type Service struct {
	Engine *engine.Engine
	Pods   *manager.Manager
}

// Register adds the calls.
func (s *Service) Register(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/pods/{ref}/exec", refs.CallWith(s.Pods, s.exec))
	mux.HandleFunc("POST /v1/pods/{ref}/attach", refs.CallWith(s.Pods, s.attach))
	mux.HandleFunc("POST /v1/pods/{ref}/copy", refs.CallWith(s.Pods, s.copyFiles))
	mux.HandleFunc("POST /v1/pods/{ref}/forward", refs.CallWith(s.Pods, s.forward))
	mux.HandleFunc("POST /v1/pods/{ref}/connect", refs.CallWith(s.Pods, s.connect))
	mux.HandleFunc("POST /v1/pods/{ref}/kill", calls.Answered(s.kill))
	mux.HandleFunc("GET /v1/pods/{ref}/console", refs.Call(s.Pods, s.console))
}

// attach opens the streams of a container's first process.
func (s *Service) attach(r *http.Request, e *manager.Pod, req api.AttachRequest) (any, error) {
	name, id, err := refs.Container(e, req.Container)
	if err != nil {
		return nil, err
	}
	stdin, tty := streamsOf(e.Spec(), name)
	if req.Stdin && !stdin {
		err := fmt.Errorf("container %s of pod %s takes no input: its spec lacks stdin: true (attach without -i, or use bulkhead exec)",
			name, e.Key())
		return nil, errclass.With(errdefs.ErrInvalidArgument, err)
	}
	c, err := s.Engine.Running(id)
	if err != nil {
		return nil, err
	}
	stream, err := c.Attach(r.Context(), process.Streams{Stdin: req.Stdin, Stdout: true, Stderr: !tty})
	if err != nil {
		return nil, err
	}
	answer := apiStream(stream)
	answer.TTY = tty
	return answer, nil
}

// Interactive returns the pod's default container if it has stdin or a terminal to attach to.
func Interactive(p *corev1.Pod) *api.Interactive {
	name, err := refs.ContainerName(p, "")
	if err != nil {
		return nil // an annotation names a missing container
	}
	if stdin, tty := streamsOf(p, name); stdin || tty {
		return &api.Interactive{Container: name, Stdin: stdin, TTY: tty}
	}
	return nil
}

// streamsOf returns whether a container's spec has stdin and a terminal.
func streamsOf(p *corev1.Pod, name string) (stdin, tty bool) {
	if c := podspec.Find(&p.Spec, name); c != nil {
		return c.Stdin, c.TTY
	}
	return false, false
}

// forward resolves the ports of a running pod.
func (s *Service) forward(_ *http.Request, e *manager.Pod, req api.ForwardRequest) (any, error) {
	if phase := e.Status().Phase; phase != corev1.PodRunning {
		return nil, errclass.New(errdefs.ErrConflict, "pod %s does not run: it is %s", e.Key(), phase)
	}
	answer := api.Forward{UID: string(e.UID())}
	for _, text := range req.Ports {
		port, err := portOf(e.Original(), text)
		if err != nil {
			return nil, err
		}
		answer.Ports = append(answer.Ports, port)
	}
	return answer, nil
}

// portOf parses a port's number, or finds its name in the pod's containers.
func portOf(p *corev1.Pod, text string) (int, error) {
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 || n > 65535 {
			return 0, errclass.New(errdefs.ErrInvalidArgument, "port %d: ports are from 1 to 65535", n)
		}
		return n, nil
	}
	var names []string
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == text {
				return int(port.ContainerPort), nil
			}
			if port.Name != "" {
				names = append(names, port.Name)
			}
		}
	}
	return 0, fmt.Errorf("port %q of pod %s/%s: %w: its ports with a name are %v", text, p.Namespace, p.Name, errdefs.ErrNotFound, names)
}

// connect opens one connection to a port of a pod.
func (s *Service) connect(r *http.Request, e *manager.Pod, req api.ConnectRequest) (any, error) {
	stream, err := s.Engine.PortForward(r.Context(), e.Sandbox(), req.Port)
	if err != nil {
		return nil, err
	}
	return apiStream(stream), nil
}

func (s *Service) exec(r *http.Request, e *manager.Pod, req api.ExecRequest) (any, error) {
	_, id, err := refs.Container(e, req.Container)
	if err != nil {
		return nil, err
	}
	c, err := s.Engine.Running(id)
	if err != nil {
		return nil, refs.OrPaused(s.Engine, e, err)
	}
	stream, err := c.Exec(r.Context(), process.Request{
		Command: req.Command, TTY: req.TTY, Streams: process.Streams{Stdin: req.Stdin, Stdout: true, Stderr: !req.TTY},
		Size:     process.Size(req.Size),
		Override: oci.Override{User: req.User, Dir: req.Dir, Env: req.Env},
	})
	if err != nil {
		return nil, refs.OrPaused(s.Engine, e, err)
	}
	return apiStream(stream), nil
}

func (s *Service) console(r *http.Request, e *manager.Pod) (any, error) {
	if e.HasEnded() {
		return nil, errclass.New(errdefs.ErrConflict, "pod %s has ended", e.Key())
	}
	stream, err := s.Engine.Console(r.Context(), e.Sandbox())
	if err != nil {
		return nil, err
	}
	return apiStream(stream), nil
}

func apiStream(s engine.Stream) api.Stream { return api.Stream{Address: s.Socket, Token: s.Token} }

// copyFiles opens the stream of a copy to or from a container.
func (s *Service) copyFiles(r *http.Request, e *manager.Pod, req api.CopyRequest) (any, error) {
	if req.Path == "" {
		return nil, errclass.With(errdefs.ErrInvalidArgument, errors.New("name a path in the container"))
	}
	if e.HasEnded() {
		err := fmt.Errorf("pod %s has ended and its files are gone: start it again with bulkhead start %s", e.Key(), e.Name())
		return nil, errclass.With(errdefs.ErrConflict, err)
	}
	_, id, err := refs.Container(e, req.Container)
	if err != nil {
		return nil, err
	}
	if err := refs.OrPaused(s.Engine, e, nil); err != nil { // the shim reports it only when it is dialled
		return nil, err
	}
	stream, err := s.Engine.Copy(r.Context(), engine.CopyRequest{ContainerID: id, Path: req.Path, In: req.In, Into: req.Into})
	if err != nil {
		return nil, err
	}
	return apiStream(stream), nil
}

// kill sends a signal to one container of a pod, or to every running one.
func (s *Service) kill(r *http.Request) (any, error) {
	e, err := refs.FindExact(s.Pods, r.PathValue("ref"))
	if err != nil {
		return nil, err
	}
	req, err := calls.Decode[api.KillRequest](r)
	if err != nil {
		return nil, err
	}
	var ids []string
	if req.Container != "" {
		_, id, err := refs.Container(e, req.Container)
		if err != nil {
			return nil, err
		}
		ids = []string{id}
	} else {
		status := e.Status()
		all := slices.Concat(status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses)
		for _, c := range all {
			if id, ok := e.Container(c.Name); ok && c.State.Running != nil {
				ids = append(ids, id)
			}
		}
	}
	if len(ids) == 0 {
		return nil, errclass.New(errdefs.ErrConflict, "pod %s: no container is running", e.Key())
	}
	for _, id := range ids {
		c, err := s.Engine.Running(id)
		if err == nil {
			err = c.Signal(r.Context(), req.Signal)
		}
		if err != nil {
			return nil, refs.OrPaused(s.Engine, e, err)
		}
	}
	return api.Result{Pod: e.Key()}, nil
}
