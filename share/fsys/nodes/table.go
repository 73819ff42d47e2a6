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
	// Nodes is the most files that the guest may know.
	Nodes int
	// Descriptors is the most descriptors. Open files and files without a name keep theirs.
	Descriptors int
}

// Table holds the guest's nodes. It is safe for concurrent use.
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

// New returns an empty table.
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

// firstID returns the first id of this process's own nodes. It is random, since the guest may use an id from an earlier
// server, which must not mean another file.
func firstID() uint64 { return uint64(1+rand.Uint32N(1<<30)) << 32 }

// treeID returns the id of a tree's root. It is the same in every process, so that the guest's mounts of it survive a
// change of the server.
func treeID(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return 1<<63 | h.Sum64()>>1
}

// Count returns the number of nodes, and of those with a descriptor.
func (t *Table) Count() (nodes, descriptors int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.nodes), t.open
}

// AddTree adds a tree. It owns fd, an O_PATH descriptor of its root. It is an error if a tree has the name already. The
// root of a removed tree with the same name keeps its id.
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

// RemoveTree removes a tree: its descriptors are closed when they are not in use, and its nodes fail with ESTALE.
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
			t.collect(n)
		}
	}
	return tree, nil
}

// Trees returns the present trees with a number above after, in the order of their numbers.
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

// Number returns the tree's place among all trees ever added, from 1.
func (tree *Tree) Number() uint64 { return uint64(tree.id) }

// Tree returns the root of the tree with that name, held, or ENOENT.
func (t *Table) Tree(name string) (*Ref, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tree := t.trees[name]
	if tree == nil {
		return nil, unix.ENOENT
	}
	return t.use(tree.root), nil
}

// Hold returns the node with that id, open until the Ref is released. change says that it will be changed. It returns
// ESTALE if there is none, or if the file is gone, and EROFS for a change in a read-only tree. For the synthetic root it
// returns EROFS with change, and EINVAL otherwise.
func (t *Table) Hold(id uint64, change bool) (*Ref, error) {
	if id == Root && !change {
		return nil, unix.EINVAL
	}
	if id == Root {
		return nil, unix.EROFS
	}
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
	if change && r.n.tree.ReadOnly {
		r.Release()
		return nil, unix.EROFS
	}
	return r, nil
}

// use counts a user of the node's descriptor.
func (t *Table) use(n *Node) *Ref {
	n.using++
	t.collect(n)
	return &Ref{FD: int(n.fd), n: n, t: t}
}

// add creates a node.
func (t *Table) add(id uint64, k key, tree *Tree, st *unix.Statx_t) *Node {
	n := &Node{id: id, key: k, born: birthTime(st), tree: tree, Type: uint32(st.Mode) & unix.S_IFMT, fd: -1}
	t.nodes[n.id] = n
	t.files[k] = n
	return n
}

// keyOf returns the identity of a file in the tree.
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

// maxVolumes bounds the mounts of all trees that are stored.
const maxVolumes = 1 << 16
