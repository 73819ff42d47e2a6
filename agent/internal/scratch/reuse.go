package scratch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/guesttree"
)

// clearWait bounds the wait for the removal of an earlier VM's files.
const clearWait = 2 * time.Second

// reuse prepares a scratch disk that an earlier VM of the same pod may have written. It keeps the volumes and removes
// the rest, because the pod may need the space. It waits a short time for the removal; large ones continue in the
// background.
func reuse(at string, log func(format string, args ...any)) error {
	rest, err := setAside(at)
	if err != nil {
		return fmt.Errorf("remove files of an earlier VM: %w", err)
	}
	if rest != "" {
		done := make(chan struct{})
		go func() { // only the VM's end stops it
			defer close(done)
			if err := guesttree.Remove(context.Background(), rest); err != nil {
				log("remove files of an earlier VM: %v", err)
			}
		}()
		select {
		case <-done:
		case <-time.After(clearWait):
		}
	}
	return layout(at)
}

// setAside moves all but the volumes to a directory rest, which is empty if nothing was moved. It removes volumes that
// are not directories.
func setAside(at string) (rest string, err error) {
	entries, err := os.ReadDir(at)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if name := e.Name(); name == "lost+found" || name == ballastFile || name == volumesDir && e.IsDir() {
			continue
		}
		if rest == "" {
			if rest, err = os.MkdirTemp(at, "old-"); err != nil {
				return "", err
			}
		}
		if err := os.Rename(filepath.Join(at, e.Name()), filepath.Join(rest, e.Name())); err != nil {
			return "", err
		}
	}
	volumes, err := os.ReadDir(filepath.Join(at, volumesDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, v := range volumes {
		if v.IsDir() {
			continue
		}
		if err := os.Remove(filepath.Join(at, volumesDir, v.Name())); err != nil {
			return "", err
		}
	}
	return rest, nil
}
