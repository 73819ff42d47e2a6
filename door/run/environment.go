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
