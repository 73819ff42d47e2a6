package named

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/guesttree"
)

// chownWait bounds the wait of a pod's start for Chown.
const chownWait = time.Minute

// Chown changes the group of all files of a Shared volume, as a kubelet does for a pod's fsGroup. Members of the
// group get the owner's read and write permissions, and new files in the directories get the group too. Chown
// does nothing if the top directory is already set, or if the engine is not root. It follows no link out of the volume,
// and clears set-id bits. It returns ErrInvalid if directories are nested deeper than guesttree.MaxLevels, or if a
// minute is not enough; the next call starts again. It skips files that cannot be changed.
func (s *Store) Chown(ctx context.Context, name string, group int) error {
	if os.Geteuid() != 0 {
		return nil
	}
	if err := chownFiles(ctx, s.Files(name), group); err != nil {
		return fmt.Errorf("give volume %s to group %d: %w", name, group, err)
	}
	return nil
}

func chownFiles(ctx context.Context, path string, group int) error {
	within, cancel := context.WithTimeout(ctx, chownWait)
	defer cancel()
	err := guesttree.Chown(within, path, group)
	switch {
	case errors.Is(err, guesttree.ErrKept): // the pod continues, as with a kubelet
		return nil
	case errors.Is(err, guesttree.ErrBounds):
		return fmt.Errorf("%w: directories are nested more than %d levels deep", ErrInvalid, guesttree.MaxLevels)
	case err != nil && within.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("%w: it has too many files for %v", ErrInvalid, chownWait)
	}
	return err
}
