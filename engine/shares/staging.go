package shares

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/place"
	"github.com/bulkhead-project/bulkhead/internal/thread"
)

// maxStaged bounds the numbers of a container's staged directories and files.
const maxStaged = 1000

// openStaged returns a detached mount of a directory or file in a staging namespace, with all mounts below it.
func openStaged(one store.Share) (*place.Place, error) {
	number, ok := strings.CutPrefix(one.Path, "/")
	if n, err := strconv.Atoi(number); !ok || err != nil || n < 0 || n > maxStaged || strconv.Itoa(n) != number {
		return nil, failure.Invalid("staged path %.80q must be / and a number up to %d", one.Path, maxStaged)
	}
	namespace, err := one.Staging.Holder.File(one.Staging.FD)
	if err != nil {
		return nil, &failure.Error{Class: errdefs.ErrFailedPrecondition, Text: "find the staging namespace", Err: err}
	}
	defer namespace.Close()
	tree, err := cloneIn(namespace, one.Path)
	if err != nil {
		return nil, &failure.Error{Class: classOf(err), Text: "staged path " + one.Path, Err: err}
	}
	return &place.Place{File: tree, Path: one.Path}, nil
}

// cloneIn clones the mounts at a path of another mount namespace.
func cloneIn(namespace *os.File, path string) (tree *os.File, err error) {
	err = thread.Do(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("enter its namespace: %w", err)
		}
		const flags = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE | unix.AT_SYMLINK_NOFOLLOW
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, flags)
		if err != nil {
			return fmt.Errorf("clone its mounts: %w", err)
		}
		tree = os.NewFile(uintptr(fd), path)
		return nil
	})
	return tree, err
}
