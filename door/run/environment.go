package run

import (
	"fmt"
	"net/http"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/image"
)

// environment is that of the command that made a request.
func (s *server) environment(r *http.Request) (image.Getenv, error) {
	texts := r.Header.Values(api.EnvironmentHeader)
	if len(texts) == 0 {
		return s.ownEnvironment.Get, nil
	}
	e, err := api.ParseEnvironment(texts[0])
	if err != nil {
		return nil, fmt.Errorf("%w environment", api.ErrInvalid) // which is not shown: passwords are in it
	}
	return e.Get, nil
}

// imagesFor is the image store as the command that made a request sees it.
func (s *server) imagesFor(r *http.Request) (*image.Store, error) {
	getenv, err := s.environment(r)
	if err != nil {
		return nil, err
	}
	return s.images.With(getenv), nil
}

// images is the image store as the command sees it that ran the pod last.
func (e *entry) images() *image.Store {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rec.getenv == nil {
		return e.r.s.images // an earlier engine's pod
	}
	return e.r.s.images.With(e.rec.getenv)
}

// reads says in what environment the pod's images are pulled from now on.
func (e *entry) reads(getenv image.Getenv) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rec.getenv = getenv
}
