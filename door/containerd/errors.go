package containerd

import (
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
)

// answer returns a method's result with a status in place of an error.
func answer[R any](r *R, err error) (*R, error) {
	if err != nil {
		return nil, grpccode.Status(err)
	}
	return r, nil
}

func noTask(id string) error { return fmt.Errorf("task %.80q: %w", id, errdefs.ErrNotFound) }
