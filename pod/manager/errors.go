package manager

import "errors"

// The classes of the manager's errors, matched with errors.Is.
var (
	ErrNotFound  = errors.New("not found")
	ErrAmbiguous = errors.New("ambiguous")
	ErrInvalid   = errors.New("invalid")
	// ErrConflict: the pod's state does not allow the operation.
	ErrConflict = errors.New("conflict")
	// ErrExists: another pod has the name.
	ErrExists = errors.New("already exists")
	// ErrRuns: the pod has not ended.
	ErrRuns = errors.New("runs")
)
