package run

import (
	"errors"
	"fmt"
	"testing"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/pod/manager"
)

// TestClassOfTwo: an error of two classes always crosses the socket in the same class.
func TestClassOfTwo(t *testing.T) {
	t.Parallel()
	for range 100 {
		err := classify(fmt.Errorf("%w, %w", manager.ErrConflict, image.ErrNotFound))
		if got := api.ToError(err).Class; got != "not-found" {
			t.Fatalf("the class is %q", got)
		}
		err = classify(errors.Join(manager.ErrConflict, manager.ErrAmbiguous))
		if !errors.Is(err, api.ErrAmbiguous) || errors.Is(err, api.ErrConflict) {
			t.Fatalf("%v is not ambiguous alone", err)
		}
		if got := api.ToError(errors.Join(api.ErrDenied, api.ErrInvalid)).Class; got != "invalid" {
			t.Fatalf("the class is %q", got)
		}
	}
}
