package logs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	podlogs "github.com/bulkhead-project/bulkhead/pod/logs"
)

// kept is how many runs' logs are kept of a container: the newest, the one before, and one for a slow follower.
const kept = 3

// Prune removes a container's older logs from dir, so that endless restarts do not fill the disk.
func Prune(dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the directory of old logs: %w", err)
	}
	runs := map[int][]string{}
	newest := 0
	for _, f := range list {
		name, _, _ := strings.Cut(f.Name(), ".log")
		n, err := strconv.Atoi(name)
		if path := name + ".log"; err != nil || f.Name() != path && f.Name() != podlogs.Older(path) {
			continue
		}
		runs[n], newest = append(runs[n], f.Name()), max(newest, n)
	}
	var errs []error
	for n, names := range runs {
		for _, name := range names {
			if n <= newest-kept {
				errs = append(errs, os.Remove(filepath.Join(dir, name)))
			}
		}
	}
	return errors.Join(errs...)
}
