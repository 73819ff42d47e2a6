package agent

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

// The directories of the scratch disk.
const (
	rootsDir   = "roots"   // what containers write to their roots
	volumesDir = "volumes" // emptyDirs, by their names
)

// clearWait bounds the wait for the removal of what an earlier VM left.
const clearWait = 2 * time.Second

// scratchLayout makes the directories for containers' roots and volumes.
func scratchLayout(at string) error {
	for _, name := range []string{rootsDir, volumesDir} {
		if err := os.MkdirAll(filepath.Join(at, name), 0o711); err != nil {
			return err
		}
	}
	return nil
}

// reuse readies a scratch disk, which an earlier VM of the same pod may have
// written. The volumes on it are kept. All else goes: it takes room that the pod may
// want, so there is a short wait for that, and it may be many files, so the rest of
// them goes in the background.
func reuse(at string) error {
	rest, err := setAside(at)
	if err != nil {
		return fmt.Errorf("remove files of an earlier VM: %w", err)
	}
	if rest != "" {
		done := make(chan struct{})
		go func() { // which nothing but the VM's end ends
			defer close(done)
			if err := guesttree.Remove(context.Background(), rest); err != nil {
				Log("remove files of an earlier VM: %v", err)
			}
		}()
		select {
		case <-done:
		case <-time.After(clearWait):
		}
	}
	return scratchLayout(at)
}

// setAside moves all but the volumes to a directory rest, empty for none. A volume
// is a directory, whatever else an earlier VM has put in its place.
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
