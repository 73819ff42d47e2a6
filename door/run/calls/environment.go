package calls

import (
	"net/http"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// Environment returns the environment of the command that made a request. A request without one gets own.
func Environment(r *http.Request, own api.Environment) (image.Getenv, error) {
	texts := r.Header.Values(api.EnvironmentHeader)
	if len(texts) == 0 {
		return own.Get, nil
	}
	e, err := api.ParseEnvironment(texts[0])
	if err != nil {
		return nil, errclass.New(errdefs.ErrInvalidArgument, "invalid environment") // not shown, because it contains passwords
	}
	return e.Get, nil
}
