package grpccode

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// TestEachCode checks that every code comes back from its class, and that the error of a call has both.
func TestEachCode(t *testing.T) {
	t.Parallel()
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if got := Of(Class(code)); got != code {
			t.Errorf("Of(Class(%s)): got %s", code, got)
		}
		err := fmt.Errorf("call: %w", Error(status.New(code, "text")))
		if !errors.Is(err, Class(code)) || status.Code(err) != code || Of(err) != code {
			t.Errorf("Error of a status %s: got %v, status.Code %s, Of %s", code, err, status.Code(err), Of(err))
		}
	}
	if err := Error(status.New(codes.OK, "")); err != nil {
		t.Errorf("Error of OK: got %v", err)
	}
}

// TestOf checks that the outermost class decides, and that it always is the same.
func TestOf(t *testing.T) {
	t.Parallel()
	known := errdefs.ErrFailedPrecondition.WithMessage("in use")
	for _, tc := range []struct {
		err  error
		code codes.Code
	}{
		{nil, codes.OK},
		{errors.New("broken"), codes.Unknown},
		{fmt.Errorf("remove: %w", known), codes.FailedPrecondition},
		{errdefs.ErrConflict, codes.FailedPrecondition},
		{fmt.Errorf("%w: %w", errdefs.ErrUnavailable, errdefs.ErrNotFound), codes.Unavailable},
		{errclass.New(errdefs.ErrInvalidArgument, "read: %w", errdefs.ErrNotFound), codes.InvalidArgument},
		{errclass.With(known, context.DeadlineExceeded), codes.FailedPrecondition},
		{fmt.Errorf("checkpoint: %w", errors.ErrUnsupported), codes.Unimplemented},
		{fmt.Errorf("call: %w", status.Error(codes.Aborted, "again")), codes.Aborted},
		{errclass.ErrAmbiguous, codes.InvalidArgument},
		{errclass.With(errdefs.ErrUnknown, fmt.Errorf("call: %w", Error(status.New(codes.NotFound, "no file")))), codes.Unknown},
	} {
		for range 10 {
			if got := Of(tc.err); got != tc.code {
				t.Errorf("Of(%v): got %s, want %s", tc.err, got, tc.code)
			}
		}
		if got := status.Code(Status(tc.err)); got != tc.code {
			t.Errorf("Status(%v): got %s, want %s", tc.err, got, tc.code)
		}
	}
	if !errors.Is(fmt.Errorf("remove: %w", known), known) || errors.Is(known, errdefs.ErrFailedPrecondition.WithMessage("busy")) {
		t.Error("errors of one class match although their messages differ")
	}
}
