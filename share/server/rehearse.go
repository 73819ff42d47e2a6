package server

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys"
)

// Rehearse serves the directories in path to a VM without a pod, until the VM has ended. Their names are as in Main. No
// code of a pod ever ran in that VM, so the process keeps its namespaces. It becomes an ordinary user's server.
func Rehearse(ctx context.Context, path string) error {
	if err := closeInherited(); err != nil {
		return err
	}
	s, err := inherit()
	if err != nil {
		return err
	}
	defer s.port.Close()
	dir, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("rehearse: %w", err)
	}
	defer dir.Close()
	if err := limit(); err != nil {
		return err
	}
	if err := becomeServer(-1); err != nil {
		return err
	}
	files, err := fsys.New(fsys.Options{Owner: &fsys.Owner{}, Waiters: waiters})
	if err != nil {
		return err
	}
	defer files.Close()
	if err := wallIn(path); err != nil {
		return err
	}
	s.files = newRoots(files, dir)
	return s.serve(ctx)
}
