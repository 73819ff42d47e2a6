package nodes

import (
	"encoding/binary"
	"hash/fnv"

	"golang.org/x/sys/unix"
)

// Enter is the node of a file that the guest has looked up as name in parent, held; it counts the lookup. It takes
// over fd, an O_PATH descriptor of the file. A nil parent is of a file without a name.
func (t *Table) Enter(parent *Ref, name string, tree *Tree, fd int, st *unix.Statx_t) (*Ref, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.find(tree, st, 0)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	r := t.use(n)
	if err := t.give(r, fd); err != nil {
		n.using--
		t.settle(n)
		return nil, err
	}
	if parent == nil {
		n.pinned = true
	} else {
		t.rename(n, parent.n, name)
	}
	n.lookups++
	return r, nil
}

// List is the id of a file that the guest is told of as name in parent, without a descriptor; it counts a lookup. It
// is ENFILE when the guest knows many files: a quarter of the nodes is left for those that it asks for by name.
func (t *Table) List(parent *Ref, name string, st *unix.Statx_t) (uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.find(parent.n.tree, st, t.limits.Nodes/4)
	if err != nil {
		return 0, err
	}
	t.rename(n, parent.n, name)
	n.lookups++
	return n.id, nil
}

// find is the node of a file, which may be a new one if that leaves room for as many as spare. An inode whose number is
// used again is another file. While a node has a descriptor, its inode cannot be used again.
func (t *Table) find(tree *Tree, st *unix.Statx_t, spare int) (*Node, error) {
	if tree.dead {
		return nil, unix.ESTALE
	}
	k, err := t.keyOf(tree, st)
	if err != nil {
		return nil, err
	}
	if n := t.files[k]; n != nil {
		if n.fd >= 0 || n.born == born(st) && n.Type == uint32(st.Mode)&unix.S_IFMT {
			return n, nil
		}
		delete(t.files, k)
	}
	if len(t.nodes) >= t.limits.Nodes-spare {
		return nil, unix.ENFILE
	}
	return t.add(t.idOf(tree, st), k, tree, st), nil
}

// idOf is the id of a new node: the same in every server of the pod's, so that the guest keeps what it has mounted on
// a file when another server is asked for it. A file whose birth is not known may be one that has the number of
// another since, and gets an id that no server has given; so does one of two that would have the same.
func (t *Table) idOf(tree *Tree, st *unix.Statx_t) uint64 {
	if at := born(st); at != 0 {
		h := fnv.New64a()
		kind := uint64(st.Mode) & unix.S_IFMT
		for _, part := range []uint64{treeID(tree.Name), unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino, uint64(at), kind} {
			_, _ = h.Write(binary.NativeEndian.AppendUint64(nil, part))
		}
		if id := stable | h.Sum64()>>2; t.nodes[id] == nil {
			return id
		}
	}
	t.next++
	return t.next - 1
}

// stable is set in the ids that files have in every server. Of these no other is that large, but those of trees.
const stable = 1 << 62

// Forget takes back n lookups. More than there were, and nodes that do not exist, are nothing.
func (t *Table) Forget(id, n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	node := t.nodes[id]
	if node == nil {
		return
	}
	node.lookups -= min(n, node.lookups)
	t.settle(node)
}

// Known is the node of the file name in parent, held, or nil if the guest does not know it.
func (t *Table) Known(parent *Ref, name string) *Ref {
	var st unix.Statx_t
	if StatAt(parent.FD, name, &st) != nil {
		return nil
	}
	t.mu.Lock()
	k, err := t.keyOf(parent.n.tree, &st)
	n := t.files[k]
	if err != nil || n == nil || n.fd < 0 && n.born != born(&st) {
		t.mu.Unlock()
		return nil
	}
	t.rename(n, parent.n, name)
	r := t.use(n)
	t.mu.Unlock()
	if err := t.reopen(r, 0); err != nil {
		r.Release()
		return nil
	}
	return r
}

// Lookups is what the guest has to forget of a node. It is for tests.
func (t *Table) Lookups(id uint64) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.nodes[id]; n != nil {
		return n.lookups
	}
	return 0
}
