package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bulkhead-project/bulkhead/door/containerd/options"
	"github.com/bulkhead-project/bulkhead/door/containerd/podconfig"
	"github.com/bulkhead-project/bulkhead/door/containerd/stdio"
)

// codeOf maps errors to the codes that containerd's errdefs turn into its own errors. The first match counts.
var codeOf = []struct {
	err  error
	code codes.Code
}{
	{ErrNotRunning, codes.NotFound}, // containerd's clients expect it after the end of a process
	{ErrNotFound, codes.NotFound},
	{ErrExists, codes.AlreadyExists},
	{ErrState, codes.FailedPrecondition},
	{ErrInvalid, codes.InvalidArgument},
	{options.ErrInvalid, codes.InvalidArgument},
	{podconfig.ErrInvalid, codes.InvalidArgument},
	{ErrUnsupported, codes.Unimplemented},
	{stdio.ErrUnsupported, codes.Unimplemented},
	{ErrUnavailable, codes.Unavailable},
	{os.ErrNotExist, codes.Unknown}, // a file, not the container
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
}

// toStatus converts err to a status. Nil stays nil.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	for _, c := range codeOf {
		if errors.Is(err, c.err) {
			return status.Error(c.code, err.Error())
		}
	}
	return status.Error(codes.Unknown, err.Error())
}

// answer returns a method's result with a status in place of an error.
func answer[R any](r *R, err error) (*R, error) {
	if err != nil {
		return nil, toStatus(err)
	}
	return r, nil
}

func noTask(id string) error { return fmt.Errorf("task %.80q: %w", id, ErrNotFound) }
