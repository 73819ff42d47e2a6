package shares

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/internal/place"
)

// open opens what a client has named. Its errors have codes; the caller closes it.
func (h Host) open(ctx context.Context, path string, how place.How) (*place.Place, error) {
	p, err := h.Rules.Open(ctx, path, how)
	if err != nil {
		return nil, &failure.Error{Code: codeOf(err), Err: err}
	}
	return p, nil
}

// pathCodes are the codes of what can be wrong with a path; the first match counts.
var pathCodes = []struct {
	err  error
	code codes.Code
}{
	{place.ErrPath, codes.InvalidArgument},
	{place.ErrPart, codes.InvalidArgument},
	{place.ErrOwn, codes.PermissionDenied},
	{place.ErrMoved, codes.PermissionDenied},
	{place.ErrKernel, codes.Unimplemented},
	{place.ErrKind, codes.Unimplemented},
	{place.ErrSilent, codes.DeadlineExceeded},
	{unix.EXDEV, codes.InvalidArgument}, // a part that leads out
	{unix.ELOOP, codes.InvalidArgument},
	{unix.ENAMETOOLONG, codes.InvalidArgument},
	{unix.ENOTDIR, codes.NotFound},
	{os.ErrNotExist, codes.NotFound},
	{os.ErrPermission, codes.PermissionDenied},
	{unix.EROFS, codes.FailedPrecondition},
	{unix.ESTALE, codes.FailedPrecondition},
	{unix.ENOSPC, codes.ResourceExhausted},
	{unix.EDQUOT, codes.ResourceExhausted},
	{unix.EMFILE, codes.ResourceExhausted},
	{unix.ENFILE, codes.ResourceExhausted},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
}

func codeOf(err error) codes.Code {
	for _, c := range pathCodes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return codes.Internal
}
