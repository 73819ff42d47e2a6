package manager

import "errors"

// The classes of the manager's errors, matched with errors.Is.
var (
	ErrNotFound  = errors.New("not found")
	ErrAmbiguous = errors.New("ambiguous")
	ErrInvalid   = errors.New("invalid")
	// ErrConflict: the pod is in a state in which that cannot be done.
	ErrConflict = errors.New("conflict")
	// ErrExists: the name is another pod's.
	ErrExists = errors.New("already exists")
	// ErrRuns: the pod has not ended.
	ErrRuns = errors.New("runs")
)
