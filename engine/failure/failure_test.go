package failure_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
)

// detailed is an error with more than one line.
type detailed struct{ error }

func (detailed) Detail() string { return "the driver's last lines" }

// TestErrors checks that an error has one line, the code of its cause, and the cause itself.
func TestErrors(t *testing.T) {
	plain, remote := errors.New("broken"), status.Error(codes.Unavailable, "the shim is gone")
	for _, tc := range []struct {
		name, text, detail string
		err                error
		code               codes.Code
	}{
		{
			name: "of no known cause", err: failure.Wrap(plain, "start pod %s", "web"),
			text: "start pod web: broken", code: codes.Unknown,
		},
		{
			name: "of a listed cause", err: failure.Wrap(fmt.Errorf("pull: %w", image.ErrNotFound), "run"),
			text: "run: pull: " + image.ErrNotFound.Error(), code: codes.NotFound,
		},
		{name: "of a status", err: failure.Wrap(remote, "exec"), text: "exec: the shim is gone", code: codes.Unavailable},
		{
			name: "of another", err: failure.Wrap(failure.Wrap(context.Canceled, "wait"), "stop"),
			text: "stop: wait: context canceled", code: codes.Canceled,
		},
		{name: "without a cause", err: failure.Invalid("no %s", "image"), text: "no image", code: codes.InvalidArgument},
		{name: "unsupported", err: failure.Unsupported("no GPU"), text: "no GPU", code: codes.Unimplemented},
		{name: "without a text", err: &failure.Error{Err: remote, Class: errdefs.ErrAborted}, text: "the shim is gone", code: codes.Aborted},
		{
			name: "with a detail", err: failure.Wrap(detailed{plain}, "boot"),
			text: "boot: broken", code: codes.Unknown, detail: "the driver's last lines",
		},
		{
			name: "with a console", err: &failure.Error{Text: "boot", Err: detailed{plain}, More: "kernel panic", Class: errdefs.ErrInternal},
			text: "boot: broken", code: codes.Internal, detail: "kernel panic",
		},
	} {
		if tc.err.Error() != tc.text || failure.Message(tc.err) != tc.text || status.Convert(tc.err).Message() != tc.text {
			t.Errorf("%s: %q, %q", tc.name, tc.err, status.Convert(tc.err).Message())
		}
		if grpccode.Of(tc.err) != tc.code || status.Code(tc.err) != tc.code {
			t.Errorf("%s: %s", tc.name, grpccode.Of(tc.err))
		}
		var e *failure.Error
		if !errors.As(tc.err, &e) || e.Detail() != tc.detail {
			t.Errorf("%s: %+v", tc.name, e)
		}
		if failure.NotFound(tc.err) != (tc.code == codes.NotFound) {
			t.Errorf("%s: not found: %v", tc.name, failure.NotFound(tc.err))
		}
	}
	if err := failure.Wrap(nil, "start"); err != nil || failure.NotFound(nil) {
		t.Errorf("nil became %v", err)
	}
	if err := failure.Wrap(plain, "start"); !errors.Is(err, plain) {
		t.Error("the cause is lost")
	}
}
