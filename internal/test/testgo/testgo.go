// Package testgo runs the go command for tests, and finds the module that they test.
package testgo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// Tree is the variable in which make passes a hash of all files of the tree. Go caches results of tests for the same
// program, files and environment. It does not see the files that a command reads, so a test that runs one must depend
// on this variable.
const Tree = "BULKHEAD_TREE"

// NeedTree makes the cached result of the calling test depend on all files of the tree, for tests that run a program
// that reads or was built from files unknown to go.
func NeedTree() { _ = os.Getenv(Tree) } // package testing records the access

// Command returns a go command in the caller's directory.
func Command(ctx context.Context, args ...string) *exec.Cmd {
	NeedTree()
	return exec.CommandContext(ctx, "go", args...)
}

// Root returns the module's directory: the first one with a go.mod above the directory where the test's process
// started.
var Root = sync.OnceValues(func() (string, error) {
	NeedTree()
	for dir := began; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the module: no go.mod above %s", began)
		}
	}
})

// began is the directory of a test's package: go test starts each test's process there.
var began, _ = os.Getwd()
