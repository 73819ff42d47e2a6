package nodes

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"

	"golang.org/x/sys/unix"
)

// Limits bounds a table.
type Limits struct {
	// Nodes is how many files the guest may know.
	Nodes int
	// Descriptors is how many of them are open. Open files and files without a name keep theirs.
	Descriptors int
}

// Table is what the guest knows. Its methods may be called at once from any goroutine.
type Table struct {
	limits Limits

	mu      sync.Mutex
	next    uint64
	nodes   map[uint64]*Node
	files   map[key]*Node
	trees   map[string]*Tree
	order   []*Tree // by id
	added   uint32  // the last tree's id
	volumes map[volume]uint32
	devices map[uint64]uint64
	open    int
	idle    list
}

// New is an empty table.
func New(limits Limits) *Table {
	return &Table{
		limits:  limits,
		next:    firstID(),
		nodes:   map[uint64]*Node{},
		files:   map[key]*Node{},
		trees:   map[string]*Tree{},
		volumes: map[volume]uint32{},
		devices: map[uint64]uint64{},
	}
}

// firstID is where the ids of nodes begin that are this process's own: elsewhere in each, since a guest may ask with an
// id that a server before this one gave it, which must not be another file's.
func firstID() uint64 { return uint64(1+rand.Uint32N(1<<30)) << 32 }

// treeID is the id of a tree's root, the same in every process: what the guest has mounted of it, another server's
// guest goes on with.
func treeID(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return 1<<63 | h.Sum64()>>1
}

// Count is how many nodes there are, and how many have a descriptor.
func (t *Table) Count() (nodes, descriptors int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.nodes), t.open
}

// AddTree takes over fd, an O_PATH descriptor of the tree's root. It is an error if a tree has the name. What the guest
// remembers of the root of a tree that was removed is the new one's.
func (t *Table) AddTree(tree *Tree, fd int) error {
	var st unix.Statx_t
	if err := Stat(fd, &st); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.trees[tree.Name] != nil {
		return unix.EEXIST
	}
	id := treeID(tree.Name)
	if old := t.nodes[id]; old != nil && !old.tree.dead {
		return unix.EEXIST
	}
	t.added++
	tree.id = t.added
	k, err := t.keyOf(tree, &st)
	if err != nil {
		return err
	}
	n := t.add(id, k, tree, &st)
	n.fd, n.pinned = int32(fd), true
	t.open++
	tree.root = n
	t.trees[tree.Name] = tree
	t.order = append(t.order, tree)
	return nil
}

// RemoveTree ends a tree: its descriptors are closed once they are not in use, and its nodes answer ESTALE.
func (t *Table) RemoveTree(name string) (*Tree, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tree := t.trees[name]
	if tree == nil {
		return nil, fmt.Errorf("no shared directory %q: %w", name, unix.ENOENT)
	}
	tree.dead = true
	delete(t.trees, name)
	for i, other := range t.order {
		if other == tree {
			t.order = append(t.order[:i:i], t.order[i+1:]...)
			break
		}
	}
	for _, n := range t.nodes {
		if n.tree == tree {
			t.settle(n)
		}
	}
	return tree, nil
}

// Trees are those that were added and not removed, in the order of their numbers, beginning after number after.
func (t *Table) Trees(after uint64) []*Tree {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, tree := range t.order {
		if uint64(tree.id) > after {
			return append([]*Tree(nil), t.order[i:]...)
		}
	}
	return nil
}

// Number is the tree's place among all trees ever added, from 1.
func (tree *Tree) Number() uint64 { return uint64(tree.id) }

// Tree is the one of that name, its root held, or ENOENT.
func (t *Table) Tree(name string) (*Ref, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tree := t.trees[name]
	if tree == nil {
		return nil, unix.ENOENT
	}
	return t.use(tree.root), nil
}

// Hold is the node of that id, open until the Ref is released. It is ESTALE if there is none, or if the file is not
// there any more.
func (t *Table) Hold(id uint64) (*Ref, error) {
	t.mu.Lock()
	n := t.nodes[id]
	if n == nil || n.tree.dead {
		t.mu.Unlock()
		return nil, unix.ESTALE
	}
	r := t.use(n)
	t.mu.Unlock()
	if err := t.reopen(r, 0); err != nil {
		r.Release()
		return nil, err
	}
	return r, nil
}

// use counts a user of the node's descriptor.
func (t *Table) use(n *Node) *Ref {
	n.using++
	t.settle(n)
	return &Ref{FD: int(n.fd), n: n, t: t}
}

// add makes a node.
func (t *Table) add(id uint64, k key, tree *Tree, st *unix.Statx_t) *Node {
	n := &Node{id: id, key: k, born: born(st), tree: tree, Type: uint32(st.Mode) & unix.S_IFMT, fd: -1}
	t.nodes[n.id] = n
	t.files[k] = n
	return n
}

// keyOf is the identity of a file in the tree.
func (t *Table) keyOf(tree *Tree, st *unix.Statx_t) (key, error) {
	v := volume{tree: tree.id, dev: unix.Mkdev(st.Dev_major, st.Dev_minor), mount: st.Mnt_id}
	i, ok := t.volumes[v]
	if !ok {
		if len(t.volumes) >= maxVolumes {
			return key{}, unix.ENFILE
		}
		i = uint32(len(t.volumes))
		t.volumes[v] = i
	}
	return key{volume: i, ino: st.Ino}, nil
}

// maxVolumes bounds the mounts of all trees that are remembered.
const maxVolumes = 1 << 16
