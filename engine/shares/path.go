package shares

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

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
		return nil, &failure.Error{Class: classOf(err), Err: err}
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
		return "", failure.New(errdefs.ErrFailedPrecondition, "volume %s is not a directory", volume)
	}
	return filepath.EvalSymlinks(h.Volumes.Files(volume))
}

// pathClasses maps errors of paths to classes; the first match counts.
var pathClasses = []struct {
	err   error
	class error
}{
	{place.ErrPath, errdefs.ErrInvalidArgument},
	{place.ErrPart, errdefs.ErrInvalidArgument},
	{place.ErrOwn, errdefs.ErrPermissionDenied},
	{place.ErrMoved, errdefs.ErrPermissionDenied},
	{place.ErrBare, errdefs.ErrFailedPrecondition},
	{place.ErrKernel, errdefs.ErrNotImplemented},
	{place.ErrKind, errdefs.ErrNotImplemented},
	{place.ErrSilent, context.DeadlineExceeded},
	{unix.EXDEV, errdefs.ErrInvalidArgument}, // a subpath that leads outside
	{unix.ELOOP, errdefs.ErrInvalidArgument},
	{unix.ENAMETOOLONG, errdefs.ErrInvalidArgument},
	{unix.ENOTDIR, errdefs.ErrNotFound},
	{os.ErrNotExist, errdefs.ErrNotFound},
	{os.ErrPermission, errdefs.ErrPermissionDenied},
	{unix.EROFS, errdefs.ErrFailedPrecondition},
	{unix.ESTALE, errdefs.ErrFailedPrecondition},
	{unix.ENOSPC, errdefs.ErrResourceExhausted},
	{unix.EDQUOT, errdefs.ErrResourceExhausted},
	{unix.EMFILE, errdefs.ErrResourceExhausted},
	{unix.ENFILE, errdefs.ErrResourceExhausted},
	{context.DeadlineExceeded, context.DeadlineExceeded},
	{context.Canceled, context.Canceled},
}

func classOf(err error) error {
	for _, c := range pathClasses {
		if errors.Is(err, c.err) {
			return c.class
		}
	}
	return errdefs.ErrInternal
}
