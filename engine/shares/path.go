package shares

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/named"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/place"
)

// open opens a path from a client. Its errors have codes; the caller must close the result.
func (h Host) open(ctx context.Context, path string, how place.OpenOptions) (*place.Place, error) {
	return h.openIn(ctx, path, path, how)
}

// reopen opens a share again by its path. It follows no link, and fails if the share's file system was unmounted.
func (h Host) reopen(ctx context.Context, one store.Share) (*place.Place, error) {
	if one.Staging != (store.Staging{}) {
		return openStaged(one)
	}
	return h.openIn(ctx, one.Asked, one.Path, place.OpenOptions{Exact: true, Mount: one.Mount})
}

// openIn opens a path for asked, which is the path that the client named, or a named volume. path may be the
// volume's name or a path in it.
func (h Host) openIn(ctx context.Context, asked, path string, how place.OpenOptions) (*place.Place, error) {
	rules := h.Rules
	if volume, ok := containerv1.VolumeOf(asked); ok && h.Volumes != nil {
		files, err := h.filesOf(volume)
		if err != nil {
			return nil, err
		}
		if path == asked {
			path = files
		}
		rules.Except, how.Missing = files, place.Fail
	}
	p, err := rules.Open(ctx, path, how)
	if err != nil {
		return nil, &failure.Error{Code: codeOf(err), Err: err}
	}
	return p, nil
}

// filesOf returns the directory of a named volume, without links in its path.
func (h Host) filesOf(volume string) (string, error) {
	v, err := h.Volumes.Get(volume)
	if err != nil {
		return "", err
	}
	if v.Kind != named.Shared {
		return "", failure.New(codes.FailedPrecondition, "volume %s is not a directory", volume)
	}
	return filepath.EvalSymlinks(h.Volumes.Files(volume))
}

// pathCodes maps errors of paths to codes; the first match counts.
var pathCodes = []struct {
	err  error
	code codes.Code
}{
	{place.ErrPath, codes.InvalidArgument},
	{place.ErrPart, codes.InvalidArgument},
	{place.ErrOwn, codes.PermissionDenied},
	{place.ErrMoved, codes.PermissionDenied},
	{place.ErrBare, codes.FailedPrecondition},
	{place.ErrKernel, codes.Unimplemented},
	{place.ErrKind, codes.Unimplemented},
	{place.ErrSilent, codes.DeadlineExceeded},
	{unix.EXDEV, codes.InvalidArgument}, // a subpath that leads outside
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
