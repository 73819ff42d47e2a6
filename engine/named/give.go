package named

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/guesttree"
)

// giveWait bounds how long the start of a pod waits for the files of a volume to be given.
const giveWait = time.Minute

// Give makes all files of a Shared volume a group's, as a kubelet does for a pod's fsGroup: its
// members may read and write what the owner may, and what is made in a directory is the group's
// too. It does nothing if the top is so already, nor for an engine that is not root, whose pods know
// no other group. No link that a pod has put there leads out of the volume, and no file is set-id after
// it. ErrInvalid of a volume with more than guesttree.MaxLevels directories in each other, or with
// more files than a minute suffices for: what lies within is given, and the next call begins anew. A file that nobody may
// change stays as it is.
func (s *Store) Give(ctx context.Context, name string, group int) error {
	if os.Geteuid() != 0 {
		return nil
	}
	if err := give(ctx, s.Files(name), group); err != nil {
		return fmt.Errorf("give volume %s to group %d: %w", name, group, err)
	}
	return nil
}

func give(ctx context.Context, path string, group int) error {
	within, cancel := context.WithTimeout(ctx, giveWait)
	defer cancel()
	err := guesttree.Give(within, path, group)
	switch {
	case errors.Is(err, guesttree.ErrKept): // as with a kubelet the pod goes on
		return nil
	case errors.Is(err, guesttree.ErrBounds):
		return fmt.Errorf("%w: more than %d directories lie in each other", ErrInvalid, guesttree.MaxLevels)
	case err != nil && within.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("%w: it has more files than %v suffices for", ErrInvalid, giveWait)
	}
	return err
}
