package run

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// kill sends a signal to one container of a pod, or to each that runs.
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
		return nil, errclass.With(api.ErrConflict, fmt.Errorf("pod %s: no container of it runs", e.Key()))
	}
	for _, id := range ids {
		if err := s.engine.SignalContainer(r.Context(), id, req.Signal); err != nil {
			return nil, e.orPaused(err)
		}
	}
	return api.Result{Pod: e.Key()}, nil
}
