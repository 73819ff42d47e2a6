package errclass

import (
	"errors"
	"io"
	"testing"

	"github.com/containerd/errdefs"
)

func TestWith(t *testing.T) {
	t.Parallel()
	class := errors.New("conflict")
	err := With(class, io.ErrUnexpectedEOF)
	if !errors.Is(err, class) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v is not both", err)
	}
	if err.Error() != io.ErrUnexpectedEOF.Error() {
		t.Errorf("its message is %q", err)
	}
}

// TestNames checks that the outermost class of an error has the name.
func TestNames(t *testing.T) {
	t.Parallel()
	names := Names{{"ambiguous", ErrAmbiguous}, {"invalid", errdefs.ErrInvalidArgument}, {"gone", errdefs.ErrNotFound}}
	gone := errdefs.ErrNotFound.WithMessage("no such pod")
	for want, errs := range map[string][]error{
		"":          {nil, io.EOF, errdefs.ErrConflict, errors.Join(io.EOF, errdefs.ErrConflict)},
		"ambiguous": {ErrAmbiguous, With(ErrAmbiguous, gone)},
		"invalid": {errors.Join(io.EOF, New(errdefs.ErrInvalidArgument, "web: %w", gone)),
			errors.Join(errdefs.ErrInvalidArgument, ErrAmbiguous)},
		"gone": {gone, New(io.EOF, "web: %w", gone)},
	} {
		for _, err := range errs {
			if got := names.Of(err); got != want {
				t.Errorf("Of(%v): got %q, want %q", err, got, want)
			}
		}
	}
	if got := names.Named("gone"); got != errdefs.ErrNotFound { //nolint:errorlint // the class itself
		t.Errorf("Named(gone): got %v", got)
	}
}
