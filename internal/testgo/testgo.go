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

// Tree is the variable in which make puts a hash of all files of the tree. Go keeps the results of tests
// and reuses them for the same program, files and environment. It does not see the files that a
// command reads, so a test that runs one must depend on this variable.
const Tree = "BULKHEAD_TREE"

// NeedTree makes the cached result of the calling test depend on all files of the tree: it runs a program that reads or
// was made of some that go does not know of.
func NeedTree() { _ = os.Getenv(Tree) } // package testing notes it

// Command is a go command in the caller's directory.
func Command(ctx context.Context, args ...string) *exec.Cmd {
	NeedTree()
	return exec.CommandContext(ctx, "go", args...)
}

// Root is the module's directory: the first one with a go.mod above the directory that the test's
// process was started in.
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
