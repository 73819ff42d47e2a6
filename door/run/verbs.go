package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/calls"
	"github.com/bulkhead-project/bulkhead/door/run/manifest"
	"github.com/bulkhead-project/bulkhead/door/run/refs"
	"github.com/bulkhead-project/bulkhead/door/run/socket"
	"github.com/bulkhead-project/bulkhead/door/run/state"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/podapi"
)

func (s *server) verb(r *http.Request) (any, error) {
	find := refs.FindExact
	if r.PathValue("verb") == "wait" {
		find = refs.Find
	}
	p, err := find(s.pods, r.PathValue("ref"))
	if err != nil {
		return nil, err
	}
	e := entryOf(p)
	result := api.Result{Pod: e.Key()}
	switch verb := r.PathValue("verb"); verb {
	case "stop":
		req, err := calls.Decode[api.StopRequest](r)
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
		getenv, err := calls.Environment(r, s.ownEnvironment)
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
		req, err := calls.Decode[api.UpdateRequest](r)
		if err != nil {
			return nil, err
		}
		return result, update(r.Context(), p, req)
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
	e, err := refs.FindExact(s.pods, r.PathValue("ref"))
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

// update replaces ConfigMaps and Secrets of a pod, and changes the resources of one of its containers.
func update(ctx context.Context, e *manager.Pod, req api.UpdateRequest) error {
	if err := updateObjects(e, req); err != nil {
		return err
	}
	if len(req.Limits)+len(req.Requests) == 0 {
		return nil
	}
	return e.Resize(ctx, req.Container, req.Limits, req.Requests)
}

func updateObjects(e *manager.Pod, req api.UpdateRequest) error {
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
