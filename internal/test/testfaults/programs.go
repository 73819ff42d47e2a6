package testfaults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

// tags are the programs' build tags, with the points of package fault.
const tags = "faults,containers_image_openpgp,grpcnotrace,exclude_graphdriver_btrfs,exclude_graphdriver_devicemapper,nri_no_wasm"

// Programs builds the programs with their points and returns their directory. Concurrent test processes share it.
var Programs = sync.OnceValues(func() (string, error) {
	root, err := testgo.Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "build", "faults")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	lock, err := flock.Acquire(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	return dir, errors.Join(build(ctx, root, dir), lock.Unlock())
})

// build updates only the programs in dir that differ from the sources.
func build(ctx context.Context, root, dir string) error {
	cmd := testgo.Command(ctx, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-tags", tags, "-o", dir,
		"./cmd/bulkhead", "./cmd/bulkhead-engine", "./cmd/bulkhead-shim", "./cmd/bulkhead-convert", "./cmd/bulkhead-share", "./cmd/bulkhead-node",
		"./cmd/bulkhead-oci", "./cmd/bulkhead-surrogate")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w: %s", err, out)
	}
	const library = "bulkhead-warm.so" // built by make
	from, err := dirs.Sibling(library)
	if err != nil {
		from = filepath.Join(root, "bin", library)
	}
	made, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, library)
	if there, err := os.ReadFile(path); err == nil && bytes.Equal(made, there) {
		return nil // a VM may have mapped it
	}
	return atomicfile.Write(path, made, 0o755, atomicfile.Volatile)
}

// Guest returns the directory of the guest bundle: BULKHEAD_GUEST, or make's.
func Guest() string {
	if dir := os.Getenv("BULKHEAD_GUEST"); dir != "" {
		return dir
	}
	root, _ := testgo.Root()
	return filepath.Join(root, "bin", "guest")
}
