package run

import (
	"errors"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/engine/named"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/manager"
)

// classes maps errors of the lower layers to the classes in which they cross the socket. If several match, the
// first one counts.
var classes = []struct{ is, of error }{
	{image.ErrNotFound, api.ErrNotFound},
	{image.ErrAmbiguous, api.ErrAmbiguous},
	{image.ErrInvalid, api.ErrInvalid},
	{image.ErrInUse, api.ErrConflict},
	{image.ErrUnauthorized, api.ErrDenied},
	{image.ErrNotLoggedIn, api.ErrNotFound},
	{manager.ErrNotFound, api.ErrNotFound},
	{manager.ErrAmbiguous, api.ErrAmbiguous},
	{manager.ErrInvalid, api.ErrInvalid},
	{manager.ErrConflict, api.ErrConflict},
	{manager.ErrExists, api.ErrConflict},
	{manager.ErrRuns, api.ErrConflict},
	{named.ErrName, api.ErrInvalid},
	{named.ErrInvalid, api.ErrInvalid},
	{named.ErrSize, api.ErrInvalid},
	{named.ErrNotFound, api.ErrNotFound},
	{named.ErrExists, api.ErrConflict},
	{named.ErrInUse, api.ErrConflict},
	{pod.ErrName, api.ErrConflict},
	{pod.ErrEnded, api.ErrConflict},
	{pod.ErrTarget, api.ErrNotFound},
}

// classify adds the class that crosses the socket to err.
func classify(err error) error {
	for _, class := range classes {
		if errors.Is(err, class.is) {
			return errclass.With(class.of, err)
		}
	}
	return err
}
