package oci

import "errors"

// The classes of this package's errors, matched with errors.Is.
var (
	// ErrInvalid: the input contradicts itself or its field's format.
	ErrInvalid = errors.New("invalid container configuration")
	// ErrNotSupported: a valid wish that is not honoured yet.
	ErrNotSupported = errors.New("not supported")
)
