package run

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/flock"
)

func (s *server) reap(r *http.Request) (any, error) {
	if err := s.pods.WaitDetached(r.Context()); err != nil {
		return nil, err
	}
	res, err := s.engine.Reap(r.Context())
	if err != nil {
		return nil, err
	}
	reaped := api.Reaped{Adopted: res.Adopted, Removed: res.Removed, Failed: res.Failed}
	// The first caller also gets the results of the engine's start, because it probably started the engine for
	// them.
	s.found.Do(func() {
		first := s.engine.Found()
		reaped.Adopted += first.Adopted
		reaped.Removed += first.Removed
	})
	if r.URL.Query().Get("all") != "true" {
		return reaped, nil
	}
	names, err := s.engine.Instances()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		res, err := s.engine.ReapInstance(r.Context(), name)
		if errors.Is(err, flock.ErrLocked) {
			reaped.Alive = append(reaped.Alive, name)
			continue
		}
		if err != nil {
			reaped.Failed = append(reaped.Failed, fmt.Sprintf("instance %s: %v", name, err))
		}
		reaped.Adopted += res.Adopted
		reaped.Removed += res.Removed
		for _, f := range res.Failed {
			reaped.Failed = append(reaped.Failed, "instance "+name+": "+f)
		}
	}
	return reaped, nil
}
