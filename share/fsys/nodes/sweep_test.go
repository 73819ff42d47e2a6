package nodes

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSweep: a file that was removed on the host is closed, unless the guest has it open. Other files stay open.
func TestSweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	table := New(Limits{Nodes: 100, Descriptors: 50})
	top, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	tree := &Tree{Name: "t"}
	if err := table.AddTree(tree, top); err != nil {
		t.Fatal(err)
	}
	root, err := table.Tree("t")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Release()
	for _, name := range []string{"there", "open", "removed", "linked"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		fd, err := OpenAt(top, name)
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Statx_t
		if err := Stat(fd, &st); err != nil {
			t.Fatal(err)
		}
		r, err := table.Enter(root, name, tree, fd, &st)
		if err != nil {
			t.Fatal(err)
		}
		if name == "open" {
			r.Opened()
		}
		r.Release()
		if name == "linked" {
			err = os.Link(path, filepath.Join(dir, "other"))
		}
		if name != "there" && err == nil {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	table.Sweep()
	if nodes, open := table.Count(); nodes != 5 || open != 4 {
		t.Errorf("%d nodes have %d descriptors", nodes, open)
	}
}
