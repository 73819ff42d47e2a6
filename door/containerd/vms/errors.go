package vms

import (
	"context"
	"errors"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bulkhead-project/bulkhead/door/containerd"
	"github.com/bulkhead-project/bulkhead/door/oci"
	"github.com/bulkhead-project/bulkhead/shim"
)

// classes are the errors of package oci that clients of containerd match.
var classes = []struct{ from, to error }{
	{oci.ErrNotRunning, containerd.ErrNotRunning},
	{oci.ErrNotExist, containerd.ErrNotFound},
	{oci.ErrExists, containerd.ErrExists},
	{shim.ErrNotRunning, containerd.ErrUnavailable},
	{ttrpc.ErrClosed, containerd.ErrUnavailable}, // the shim has ended
	{context.DeadlineExceeded, context.DeadlineExceeded},
	{context.Canceled, context.Canceled},
}

// byCode are the errors of the engine and of shims.
var byCode = map[codes.Code]error{
	codes.InvalidArgument:    containerd.ErrInvalid,
	codes.Unimplemented:      containerd.ErrUnsupported,
	codes.Unavailable:        containerd.ErrUnavailable,
	codes.FailedPrecondition: containerd.ErrState,
}

// class returns err with the error class of package containerd. The text stays.
func class(err error) error {
	if err == nil {
		return nil
	}
	for _, c := range classes {
		if errors.Is(err, c.from) {
			return classified{err, c.to}
		}
	}
	if to := byCode[status.Code(err)]; to != nil {
		return classified{err, to}
	}
	return err
}

type classified struct{ err, class error }

func (c classified) Error() string   { return c.err.Error() }
func (c classified) Unwrap() []error { return []error{c.err, c.class} }
