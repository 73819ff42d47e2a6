package vms

import (
	"errors"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/door/oci"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
)

// passed are the codes that clients of containerd may get from the engine and from shims. NotFound and AlreadyExists are
// about the container to them, so that only package oci may return these two.
var passed = []codes.Code{
	codes.InvalidArgument, codes.Unimplemented, codes.Unavailable, codes.FailedPrecondition, codes.DeadlineExceeded, codes.Canceled,
}

// class returns err with the class that clients may match. The text stays.
func class(err error) error {
	if err == nil {
		return nil
	}
	for _, own := range []error{oci.ErrNotRunning, oci.ErrNotExist, oci.ErrExists} {
		if errors.Is(err, own) {
			return errclass.With(own, err)
		}
	}
	if errors.Is(err, ttrpc.ErrClosed) { // the shim has ended
		return errclass.With(errdefs.ErrUnavailable, err)
	}
	if slices.Contains(passed, grpccode.Of(err)) {
		return err
	}
	return errclass.With(errdefs.ErrUnknown, err)
}
