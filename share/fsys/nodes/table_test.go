package nodes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// fixture returns a table with a tree, and the held root of the tree.
func fixture(t *testing.T, limits Limits) (*Table, *Ref, string) {
	t.Helper()
	host := t.TempDir()
	fd, err := unix.Open(host, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	table := New(limits)
	if err := table.AddTree(&Tree{Name: "tree"}, fd); err != nil {
		t.Fatal(err)
	}
	root, err := table.Tree("tree")
	if err != nil {
		t.Fatal(err)
	}
	return table, root, host
}

// lookUp looks a name up and releases its node.
func lookUp(t *testing.T, table *Table, dir *Ref, name string) uint64 {
	t.Helper()
	fd, err := OpenAt(dir.FD, name)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Statx_t
	if err := Stat(fd, &st); err != nil {
		t.Fatal(err)
	}
	r, err := table.Enter(dir, name, dir.Tree(), fd, &st)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	return r.ID()
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func counts(t *testing.T, table *Table, nodes, descriptors int) {
	t.Helper()
	if n, d := table.Count(); n != nodes || d != descriptors {
		t.Errorf("%d nodes and %d descriptors, not %d and %d", n, d, nodes, descriptors)
	}
}

// stale reports whether the file of a node is gone.
func stale(table *Table, id uint64) bool {
	r, err := table.Hold(id, false)
	if err == nil {
		r.Release()
	}
	return errors.Is(err, unix.ESTALE)
}

// TestForget: nodes stay while they have lookups, children or users.
func TestForget(t *testing.T) {
	table, root, host := fixture(t, Limits{Nodes: 10, Descriptors: 10})
	mkdir(t, filepath.Join(host, "a/b"))
	a := lookUp(t, table, root, "a")
	ref, err := table.Hold(a, false)
	if err != nil {
		t.Fatal(err)
	}
	b := lookUp(t, table, ref, "b")
	if again := lookUp(t, table, root, "a"); again != a {
		t.Errorf("the same file is %d and %d", a, again)
	}
	ref.Release()
	counts(t, table, 3, 3)
	table.Forget(a, 5) // it was looked up twice
	counts(t, table, 3, 3)
	held, err := table.Hold(b, false)
	if err != nil {
		t.Fatal(err)
	}
	table.Forget(b, 1)
	counts(t, table, 3, 3)
	held.Release()
	counts(t, table, 1, 1)
	if !stale(table, a) || !stale(table, b) || !stale(table, 99) {
		t.Error("a forgotten node still exists")
	}
	for change, want := range map[bool]error{false: unix.EINVAL, true: unix.EROFS} {
		if _, err := table.Hold(Root, change); !errors.Is(err, want) {
			t.Errorf("the synthetic root, change=%t: %v", change, err)
		}
	}
	table.Forget(root.ID(), 1)
	root.Release()
	counts(t, table, 1, 1)
}

// TestIDs: a file has the same id in every server, and no other file has it, whatever was looked up before.
func TestIDs(t *testing.T) {
	_, root, host := fixture(t, Limits{Nodes: 10, Descriptors: 10})
	root.Release()
	mkdir(t, filepath.Join(host, "a"))
	mkdir(t, filepath.Join(host, "b"))
	ids := func(name string, ask ...string) []uint64 {
		fd, err := unix.Open(host, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		table := New(Limits{Nodes: 10, Descriptors: 10})
		if err := table.AddTree(&Tree{Name: name}, fd); err != nil {
			t.Fatal(err)
		}
		tree, err := table.Tree(name)
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Release()
		var all []uint64
		for _, name := range ask {
			all = append(all, lookUp(t, table, tree, name))
		}
		return all
	}
	first, second, other := ids("tree", "a", "b"), ids("tree", "b", "a"), ids("other", "a", "b")
	if first[0] != second[1] || first[1] != second[0] {
		t.Errorf("two servers call the same files %d and %d", first, second)
	}
	if first[0] == first[1] || first[0] == other[0] || first[1] == other[1] {
		t.Errorf("two files have one id: %d, %d", first, other)
	}
	if err := os.Remove(filepath.Join(host, "a")); err != nil {
		t.Fatal(err)
	}
	mkdir(t, filepath.Join(host, "a"))
	if again := ids("tree", "a"); again[0] == first[0] {
		t.Error("a file with the same name has the same id")
	}
}

// TestEvict: the least recently used descriptors are closed, and opened again by the file's name.
func TestEvict(t *testing.T) {
	const count = 40
	table, root, host := fixture(t, Limits{Nodes: 100, Descriptors: 5})
	ids := make([]uint64, count)
	for i := range ids {
		mkdir(t, filepath.Join(host, fmt.Sprint(i)))
		ids[i] = lookUp(t, table, root, fmt.Sprint(i))
	}
	counts(t, table, count+1, 5)
	for i := range ids {
		if stale(table, ids[i]) {
			t.Errorf("%d is not there", i)
		}
	}
	counts(t, table, count+1, 5)
	// 0 has moved, 1 was replaced, and 2 was moved by the guest.
	for _, move := range [][2]string{{"0", "moved"}, {"1", "aside"}, {"2", "known"}} {
		if err := os.Rename(filepath.Join(host, move[0]), filepath.Join(host, move[1])); err != nil {
			t.Fatal(err)
		}
	}
	mkdir(t, filepath.Join(host, "1"))
	known := table.Known(root, "known")
	if known == nil || known.ID() != ids[2] {
		t.Fatal("a node is not found by its file")
	}
	known.Release()
	for i, want := range []bool{true, true, false} {
		for j := 10; j < 20; j++ {
			stale(table, ids[j])
		}
		if got := stale(table, ids[i]); got != want {
			t.Errorf("%d: stale is %v", i, got)
		}
	}
	if again := lookUp(t, table, root, "moved"); again != ids[0] {
		t.Errorf("the moved file is %d, and was %d", again, ids[0])
	}
	// Descriptors in use stay open, until there is no space for more.
	var held []*Ref
	for i := 10; i < 20; i++ {
		r, err := table.Hold(ids[i], false)
		if err != nil {
			if !errors.Is(err, unix.ENFILE) {
				t.Error(err)
			}
			break
		}
		held = append(held, r)
	}
	if len(held) != 4 {
		t.Errorf("%d are in use", len(held))
	}
	for _, r := range held {
		r.Release()
	}
}

// TestPinned: descriptors of open files and of nameless files stay open.
func TestPinned(t *testing.T) {
	table, root, host := fixture(t, Limits{Nodes: 100, Descriptors: 4})
	for _, name := range []string{"open", "removed", "1", "2", "3", "4"} {
		mkdir(t, filepath.Join(host, name))
	}
	opened, removed := lookUp(t, table, root, "open"), lookUp(t, table, root, "removed")
	o, _ := table.Hold(opened, false)
	o.Opened()
	o.Release()
	r, _ := table.Hold(removed, false)
	r.Pin()
	r.Release()
	for _, name := range []string{"open", "removed"} {
		if err := os.Remove(filepath.Join(host, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"1", "2", "3", "4"} {
		lookUp(t, table, root, name)
	}
	if stale(table, opened) || stale(table, removed) {
		t.Error("an open or nameless file has lost its descriptor")
	}
	table.Forget(removed, 1)
	if !stale(table, removed) {
		t.Error("a forgotten node still exists")
	}
}

// TestCycle moves directories on the host until two are each other's parent in memory.
func TestCycle(t *testing.T) {
	table, root, host := fixture(t, Limits{Nodes: 100, Descriptors: 3})
	mkdir(t, filepath.Join(host, "a/b"))
	a := lookUp(t, table, root, "a")
	ref, err := table.Hold(a, false)
	if err != nil {
		t.Fatal(err)
	}
	b := lookUp(t, table, ref, "b")
	ref.Release()
	inner, err := table.Hold(b, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, move := range [][2]string{{"a/b", "b"}, {"a", "b/a"}} {
		if err := os.Rename(filepath.Join(host, move[0]), filepath.Join(host, move[1])); err != nil {
			t.Fatal(err)
		}
	}
	if again := lookUp(t, table, inner, "a"); again != a {
		t.Errorf("a is %d, and was %d", again, a)
	}
	inner.Release()
	table.Forget(a, 9)
	table.Forget(b, 9)
	counts(t, table, 1, 1)
}

// TestReused: a reused inode number means another file.
func TestReused(t *testing.T) {
	table, root, host := fixture(t, Limits{Nodes: 3, Descriptors: 2})
	mkdir(t, filepath.Join(host, "a"))
	mkdir(t, filepath.Join(host, "b"))
	a := lookUp(t, table, root, "a")
	b := lookUp(t, table, root, "b") // a is closed for it
	table.nodes[a].born--            // as if a had been removed, and its number used again
	if !stale(table, a) {
		t.Error("another file is taken for it")
	}
	table.Forget(b, 1)
	if again := lookUp(t, table, root, "a"); again == a {
		t.Error("another file has its node")
	}
}

// TestRemoveTree: a tree's descriptors are closed, those in use at the end of their use.
func TestRemoveTree(t *testing.T) {
	table, root, host := fixture(t, Limits{Nodes: 10, Descriptors: 10})
	mkdir(t, filepath.Join(host, "a"))
	a := lookUp(t, table, root, "a")
	if _, err := table.RemoveTree("tree"); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Tree("tree"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("the tree: %v", err)
	}
	counts(t, table, 2, 1)
	if !stale(table, a) {
		t.Error("a file of it is there")
	}
	root.Release()
	table.Forget(a, 1)
	counts(t, table, 0, 0)
	if _, err := table.RemoveTree("tree"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("removed again: %v", err)
	}
}

// TestIno: numbers of several devices differ, those of the first are the host's, and large ones fit.
func TestIno(t *testing.T) {
	table := New(Limits{})
	seen := map[uint64]bool{}
	for dev := range uint64(100) {
		for _, ino := range []uint64{1, 2, 1<<48 - 1, 1 << 48, ^uint64(0)} {
			got := table.InoOf(dev, ino)
			if seen[got] || got == RootIno || got == 0 {
				t.Errorf("%d of device %d is %x, as another's", ino, dev, got)
			}
			seen[got] = true
			if dev == 0 && ino < 1<<48 && got != ino {
				t.Errorf("%d is %d", ino, got)
			}
		}
	}
}

// TestFull: a quarter of the nodes is kept for look-ups by name.
func TestFull(t *testing.T) {
	table, root, host := fixture(t, Limits{Nodes: 8, Descriptors: 8})
	list := func(name string) (uint64, error) {
		mkdir(t, filepath.Join(host, name))
		var st unix.Statx_t
		if err := StatAt(root.FD, name, &st); err != nil {
			t.Fatal(err)
		}
		return table.List(root, name, &st)
	}
	for i := range 5 {
		if _, err := list(fmt.Sprint(i)); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	counts(t, table, 6, 1)
	if _, err := list("many"); !errors.Is(err, unix.ENFILE) {
		t.Errorf("listed though there are many: %v", err)
	}
	first, err := list("0")
	if err != nil || table.Lookups(first) != 2 || lookUp(t, table, root, "0") != first || stale(table, first) {
		t.Errorf("listed again: %d, %v, looked up %d times", first, err, table.Lookups(first))
	}
	lookUp(t, table, root, "many")
	mkdir(t, filepath.Join(host, "last"))
	lookUp(t, table, root, "last")
	mkdir(t, filepath.Join(host, "too many"))
	fd, err := OpenAt(root.FD, "too many")
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Statx_t
	if err := Stat(fd, &st); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Enter(root, "too many", root.Tree(), fd, &st); !errors.Is(err, unix.ENFILE) {
		t.Errorf("looked up though there are too many: %v", err)
	}
	if err := unix.Fstat(fd, new(unix.Stat_t)); !errors.Is(err, unix.EBADF) {
		t.Errorf("its descriptor: %v", err)
	}
}

// TestKnown finds no node for a missing or unknown file, or for one with a reused number.
func TestKnown(t *testing.T) {
	table, root, host := fixture(t, Limits{Nodes: 8, Descriptors: 2})
	mkdir(t, filepath.Join(host, "a"))
	mkdir(t, filepath.Join(host, "b"))
	for _, name := range []string{"a", "nowhere"} {
		if r := table.Known(root, name); r != nil {
			t.Errorf("%s is known as %d", name, r.ID())
		}
	}
	a := lookUp(t, table, root, "a")
	r := table.Known(root, "a")
	if r == nil || r.ID() != a || r.FD < 0 {
		t.Fatalf("a is not known: %v", r)
	}
	r.Release()
	lookUp(t, table, root, "b") // a is closed for it
	if r := table.Known(root, "a"); r == nil || r.FD < 0 {
		t.Errorf("a is not opened again: %v", r)
	} else {
		r.Release()
	}
	lookUp(t, table, root, "b")
	table.nodes[a].born--
	if r := table.Known(root, "a"); r != nil {
		t.Error("another file with its number is taken for it")
	}
}

// TestAgain adds a tree with the name of a removed one that the guest has not forgotten.
func TestAgain(t *testing.T) {
	table, root, host := fixture(t, Limits{Nodes: 20, Descriptors: 10})
	mkdir(t, filepath.Join(host, "a"))
	was := []uint64{root.ID(), lookUp(t, table, root, "a")}
	root.LookedUp()
	root.Release()
	for range 3 {
		if _, err := table.RemoveTree("tree"); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Open(host, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := table.AddTree(&Tree{Name: "tree"}, fd); err != nil {
			t.Fatal(err)
		}
		if err := table.AddTree(&Tree{Name: "tree"}, fd); !errors.Is(err, unix.EEXIST) {
			t.Errorf("added twice: %v", err)
		}
		root, err := table.Tree("tree")
		if err != nil || root.ID() != was[0] {
			t.Fatalf("the root: %v", err)
		}
		if a := lookUp(t, table, root, "a"); a == was[1] || stale(table, a) || !stale(table, was[1]) {
			t.Errorf("a is %d, and was %d", a, was[1])
		}
		root.Release()
	}
	for id := range table.nodes {
		table.Forget(id, 9)
	}
	counts(t, table, 1, 1)
}
