package client

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/bulkhead-project/bulkhead/internal/userns"
)

// ErrNamespace is matched by the error of a call if the engine is in another user namespace than the caller. Podman makes
// another one after podman system migrate, for example. The engine has no rights in it.
var ErrNamespace = errors.New("the engine runs in an earlier user namespace, and ends some minutes after its last container")

// ofNamespace returns an error unless the engine is in this process's user namespace. It asks only in podman's: from
// others, the engine of the same user can do the caller's work.
func ofNamespace(engine int) error {
	if _, inner := userns.Inner(); !inner {
		return nil
	}
	same, err := userns.Same(fmt.Sprintf("/proc/%d/ns/user", engine))
	if err != nil && !errors.Is(err, fs.ErrPermission) { // it may not look into an earlier one
		return fmt.Errorf("find the engine's user namespace: %w", err)
	}
	if !same {
		return fmt.Errorf("%w (kill %d ends it now)", ErrNamespace, engine)
	}
	return nil
}
