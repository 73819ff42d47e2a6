package payload

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Tree is a real tree of files, as a repository and as an archive.
type Tree struct {
	dir string
	// Files is the number of files.
	Files int
}

// MakeTree creates dir and puts the tree of the benchmark's checkout into it.
func MakeTree(ctx context.Context, dir string) (Tree, error) {
	t := Tree{dir: dir}
	repository, archive := filepath.Join(t.dir, "tree.git"), filepath.Join(t.dir, "tree.tar")
	here, err := os.Getwd()
	if err != nil {
		return t, err
	}
	if err := os.Mkdir(t.dir, 0o755); err != nil {
		return t, err
	}
	for _, args := range [][]string{
		{"clone", "-q", "--bare", "--depth", "1", "file://" + here, repository},
		{"archive", "--format=tar", "-o", archive, "HEAD"},
	} {
		if out, err := exec.CommandContext(ctx, "git", args...).CombinedOutput(); err != nil {
			return t, fmt.Errorf("git %s: %w: %.400s", args[0], err, out)
		}
	}
	out, err := exec.CommandContext(ctx, "git", "-C", repository, "ls-tree", "-r", "--name-only", "HEAD").Output()
	t.Files = strings.Count(string(out), "\n")
	return t, err
}

// CopyTo copies the repository and the archive into a directory, which it creates.
func (t Tree) CopyTo(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "cp", "-a", t.dir+"/.", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %.400s", err, out)
	}
	return os.Chmod(dir, 0o755)
}

// Tidy removes the results of the last work of that verb.
func (Tree) Tidy(ctx context.Context, dir, verb string) error {
	made, again := map[string]string{"make": "small", "clone": "clone", "tar": "tar"}[verb]
	if !again {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(dir, made)); err != nil {
		return err
	}
	// A guest may still see a name for a second after its removal.
	select {
	case <-time.After(1100 * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	if verb == "tar" {
		return os.Mkdir(filepath.Join(dir, made), 0o755)
	}
	return nil
}
