package oci

import "errors"

// The classes of this package's errors, matched with errors.Is.
var (
	// ErrInvalid is matched for input that contradicts itself or its field's format.
	ErrInvalid = errors.New("invalid container configuration")
	// ErrNotSupported is matched for a valid setting that is not supported yet.
	ErrNotSupported = errors.New("not supported")
)
