package oci

import "github.com/containerd/errdefs"

// The classes of this package's errors, matched with errors.Is.
var (
	// ErrInvalid is matched for input that contradicts itself or its field's format.
	ErrInvalid = errdefs.ErrInvalidArgument.WithMessage("invalid container configuration")
	// ErrNotSupported is matched for a valid setting that is not supported yet.
	ErrNotSupported = errdefs.ErrNotImplemented.WithMessage("not supported")
)
