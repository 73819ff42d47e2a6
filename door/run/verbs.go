package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/manifest"
	"github.com/bulkhead-project/bulkhead/door/run/socket"
	"github.com/bulkhead-project/bulkhead/door/run/state"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/podapi"
)

func (s *server) inspect(r *http.Request) (any, error) {
	e, err := s.find(r.PathValue("ref"))
	if err != nil {
		return nil, err
	}
	p := e.shown()
	if f, err := s.engine.Facts(r.Context(), e.Sandbox()); err == nil {
		p.Status.Conditions = append(p.Status.Conditions, vmCondition(f, p.Status.StartTime))
	}
	return p, nil
}

// shown returns the pod as in the API.
func (e *entry) shown() *corev1.Pod {
	p := e.Spec().DeepCopy()
	p.Status = e.Status()
	p.APIVersion, p.Kind = "v1", "Pod"
	return p
}

func (s *server) facts(r *http.Request) (any, error) {
	e, err := s.find(r.PathValue("ref"))
	if err != nil {
		return nil, err
	}
	return s.engine.Facts(r.Context(), e.Sandbox())
}

func (s *server) verb(r *http.Request) (any, error) {
	find := s.findExact
	if r.PathValue("verb") == "wait" {
		find = s.find
	}
	e, err := find(r.PathValue("ref"))
	if err != nil {
		return nil, err
	}
	result := api.Result{Pod: e.Key()}
	switch verb := r.PathValue("verb"); verb {
	case "stop":
		req, err := decode[api.StopRequest](r)
		if err != nil {
			return nil, err
		}
		// The pod's end continues if the client that asked for it disconnects.
		defer s.pods.TrackDetached(func() bool { return socket.Left(r.Context()) })()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), manager.EndTimeout(e.Original(), req.Grace))
		defer cancel()
		return result, e.Stop(ctx, req.Grace)
	case "start":
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), manager.EndTimeout(e.Original(), nil))
		defer cancel()
		getenv, err := s.environment(r)
		if err != nil {
			return nil, err
		}
		if e.HasEnded() { // a running pod keeps its environment
			e.reads(getenv)
		}
		if err := e.Start(ctx); err != nil {
			return nil, err
		}
		err = s.started(r.Context(), e, func(api.Message) error { return nil })
		e.KeepTrying()
		return result, err
	case "update":
		req, err := decode[api.UpdateRequest](r)
		if err != nil {
			return nil, err
		}
		return result, e.update(r.Context(), req)
	case "pause", "resume":
		if e.HasEnded() {
			return nil, errclass.New(errdefs.ErrConflict, "pod %s has ended", e.Key())
		}
		if verb == "resume" {
			return result, s.engine.ResumePod(r.Context(), e.Sandbox())
		}
		return result, s.engine.PausePod(r.Context(), e.Sandbox())
	case "wait":
		select {
		case <-e.Ended():
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		result.ExitCode = state.ExitCode(e.Original(), e.Status())
		return result, nil
	default:
		return nil, fmt.Errorf("%w: no call %q", errdefs.ErrNotFound, verb)
	}
}

func (s *server) remove(r *http.Request) (any, error) {
	e, err := s.findExact(r.PathValue("ref"))
	if err != nil {
		return nil, err
	}
	defer s.pods.TrackDetached(func() bool { return socket.Left(r.Context()) })()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), manager.EndTimeout(e.Original(), nil))
	defer cancel()
	err = e.Remove(ctx, r.URL.Query().Get("force") == "true")
	if errors.Is(err, manager.ErrRuns) {
		err = fmt.Errorf("%w: stop it first, or use --force", err)
	}
	return api.Result{Pod: e.Key()}, err
}

// generate answers with a pod in the form that users write, see manifest.Write.
func (s *server) generate(r *http.Request) (any, error) {
	e, err := s.find(r.PathValue("ref"))
	if err != nil {
		return nil, err
	}
	if err := e.Damaged(); err != nil {
		return nil, err
	}
	asked, err := e.Written()
	if err != nil {
		return nil, err
	}
	return manifest.Write(asked, e.Objects(), r.URL.Query().Get("secrets") == "true")
}

// update replaces ConfigMaps and Secrets of a pod, and changes the resources of one of its containers.
func (e *entry) update(ctx context.Context, req api.UpdateRequest) error {
	if err := e.updateObjects(req); err != nil {
		return err
	}
	if len(req.Limits)+len(req.Requests) == 0 {
		return nil
	}
	return e.Resize(ctx, req.Container, req.Limits, req.Requests)
}

func (e *entry) updateObjects(req api.UpdateRequest) error {
	found, err := manifest.Read(req.Manifests, podapi.Options{})
	if err != nil {
		return err
	}
	all := manifest.Objects(found)
	if pods := found.Pods; len(pods) > 0 {
		err := fmt.Errorf("pod %s: an existing pod cannot be replaced: give only ConfigMaps and Secrets", pods[0].Name)
		return errclass.With(errdefs.ErrInvalidArgument, err)
	}
	for _, object := range all.ConfigMaps {
		if object.Namespace != e.Original().Namespace {
			err := fmt.Errorf("configmap %s/%s is in another namespace than pod %s", object.Namespace, object.Name, e.Key())
			return errclass.With(errdefs.ErrInvalidArgument, err)
		}
	}
	for _, object := range all.Secrets {
		if object.Namespace != e.Original().Namespace {
			err := fmt.Errorf("secret %s/%s is in another namespace than pod %s", object.Namespace, object.Name, e.Key())
			return errclass.With(errdefs.ErrInvalidArgument, err)
		}
	}
	if all.Empty() {
		return nil
	}
	return e.PutObjects(all)
}

// kill sends a signal to one container of a pod, or to every running one.
func (s *server) kill(r *http.Request) (any, error) {
	e, err := s.findExact(r.PathValue("ref"))
	if err != nil {
		return nil, err
	}
	req, err := decode[api.KillRequest](r)
	if err != nil {
		return nil, err
	}
	var ids []string
	if req.Container != "" {
		_, id, err := e.container(req.Container)
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
		if err := s.engine.SignalContainer(r.Context(), id, req.Signal); err != nil {
			return nil, e.orPaused(err)
		}
	}
	return api.Result{Pod: e.Key()}, nil
}
