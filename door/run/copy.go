package run

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/bulkhead-project/bulkhead/cri"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// copyFiles opens the stream of a copy to or from a container.
func (s *server) copyFiles(r *http.Request) (any, error) {
	e, err := s.pods.find(r.PathValue("ref"))
	if err != nil {
		return nil, err
	}
	req, err := decode[api.CopyRequest](r)
	if err != nil {
		return nil, err
	}
	if req.Path == "" {
		return nil, class(api.ErrInvalid, errors.New("name a path in the container"))
	}
	if e.hasEnded() {
		return nil, class(api.ErrConflict, fmt.Errorf("pod %s has ended, and its files with it: bulkhead start %s runs it anew", e.key(), e.rec.Pod.Name))
	}
	_, id, err := e.container(req.Container)
	if err != nil {
		return nil, err
	}
	if err := e.orPaused(nil); err != nil { // the shim says no only when it is dialled
		return nil, err
	}
	u, err := s.engine.CopyURL(r.Context(), cri.CopyRequest{ContainerID: id, Path: req.Path, In: req.In, Into: req.Into})
	if err != nil {
		return nil, err
	}
	return parseStream(u)
}
