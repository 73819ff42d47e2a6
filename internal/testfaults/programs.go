package testfaults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// tags are those that the programs are built with, and the points of package
// fault.
const tags = "faults,containers_image_openpgp,grpcnotrace,exclude_graphdriver_btrfs,exclude_graphdriver_devicemapper,nri_no_wasm"

// Programs builds the programs with their points, once, and returns their directory.
var Programs = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(root(), "build", "faults")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", tags, "-o", dir,
		"./cmd/bulkhead", "./cmd/bulkhead-engine", "./cmd/bulkhead-shim", "./cmd/bulkhead-convert", "./cmd/bulkhead-share", "./cmd/bulkhead-node")
	cmd.Dir, cmd.Env = root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the programs: %w: %s", err, out)
	}
	const library = "bulkhead-warm.so" // which make has built
	from, err := dirs.Sibling(library)
	if err != nil {
		from = filepath.Join(root(), "bin", library)
	}
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, library), b, 0o755)
	}
	return dir, err
})

// Guest is the directory of the guest's bundle: where make says, or where it puts it.
func Guest() string {
	if dir := os.Getenv("BULKHEAD_GUEST"); dir != "" {
		return dir
	}
	return filepath.Join(root(), "bin", "guest")
}

// root is the module's directory.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}
