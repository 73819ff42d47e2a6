package calls

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/named"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/pod/manager"
)

// TestClasses checks the class and the HTTP status with which errors of all layers cross the socket. The outermost class of an
// error decides, each time.
func TestClasses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err   error
		class string
		code  int
	}{
		{errors.New("broken"), "", http.StatusInternalServerError},
		{image.ErrPolicy, "", http.StatusInternalServerError},
		{image.ErrNotFound, "not-found", http.StatusNotFound},
		{image.ErrNotLoggedIn, "not-found", http.StatusNotFound},
		{named.ErrNotFound, "not-found", http.StatusNotFound},
		{image.ErrAmbiguous, "ambiguous", http.StatusBadRequest},
		{errclass.ErrAmbiguous, "ambiguous", http.StatusBadRequest},
		{image.ErrInvalid, "invalid", http.StatusBadRequest},
		{named.ErrName, "invalid", http.StatusBadRequest},
		{named.ErrSize, "invalid", http.StatusBadRequest},
		{named.ErrInvalid, "invalid", http.StatusBadRequest},
		{&image.InUseError{Sandboxes: []string{"web"}}, "conflict", http.StatusConflict},
		{named.ErrExists, "conflict", http.StatusConflict},
		{named.ErrInUse, "conflict", http.StatusConflict},
		{manager.ErrRuns, "conflict", http.StatusConflict},
		{network.ErrPortInUse, "conflict", http.StatusConflict},
		{failure.New(errdefs.ErrConflict, "not now"), "conflict", http.StatusConflict},
		{image.ErrUnauthorized, "denied", http.StatusForbidden},
		{fmt.Errorf("%w, %w", errdefs.ErrConflict, image.ErrNotFound), "conflict", http.StatusConflict},
		{errclass.New(errdefs.ErrInvalidArgument, "read: %w", image.ErrNotFound), "invalid", http.StatusBadRequest},
		{errors.Join(errdefs.ErrConflict, errclass.ErrAmbiguous), "conflict", http.StatusConflict},
	} {
		for range 10 {
			sent := api.ToError(fmt.Errorf("call: %w", tc.err))
			if code := statusOf(tc.err); sent.Class != tc.class || code != tc.code {
				t.Errorf("%v: got class %q and status %d, want %q and %d", tc.err, sent.Class, code, tc.class, tc.code)
			}
			if again := api.ToError(errors.Join(sent.Unwrap(), errors.New("answer"))); again.Class != tc.class {
				t.Errorf("class %q on the client's side: got %q", tc.class, again.Class)
			}
		}
	}
}
