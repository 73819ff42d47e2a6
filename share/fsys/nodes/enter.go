package nodes

import (
	"encoding/binary"
	"hash/fnv"

	"golang.org/x/sys/unix"
)

// Enter returns the node of a file that the guest has looked up as name in parent, held, and counts the lookup. It owns
// fd, an O_PATH descriptor of the file. parent is nil for a file without a name.
func (t *Table) Enter(parent *Ref, name string, tree *Tree, fd int, st *unix.Statx_t) (*Ref, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.find(tree, st, 0)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	r := t.use(n)
	if err := t.setFD(r, fd); err != nil {
		n.using--
		t.collect(n)
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

// List returns the id of a file that is listed as name in parent, without a descriptor, and counts a lookup. It returns
// ENFILE if the guest knows many files: a quarter of the nodes is kept for look-ups by name.
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

// find returns the node of a file. It creates one if at least spare nodes are left. An inode number that was reused
// means another file. While a node has a descriptor, its inode number cannot be reused.
func (t *Table) find(tree *Tree, st *unix.Statx_t, spare int) (*Node, error) {
	if tree.dead {
		return nil, unix.ESTALE
	}
	k, err := t.keyOf(tree, st)
	if err != nil {
		return nil, err
	}
	if n := t.files[k]; n != nil {
		if n.fd >= 0 || n.born == birthTime(st) && n.Type == uint32(st.Mode)&unix.S_IFMT {
			return n, nil
		}
		delete(t.files, k)
	}
	if len(t.nodes) >= t.limits.Nodes-spare {
		return nil, unix.ENFILE
	}
	return t.add(t.idOf(tree, st), k, tree, st), nil
}

// idOf returns the id of a new node. It is the same in every server of the pod, so that the guest's mounts on a file
// survive a change of the server. A file without a known birth time may have a reused inode number, so it gets an id
// that no server has used. A file with a colliding id does too.
func (t *Table) idOf(tree *Tree, st *unix.Statx_t) uint64 {
	if at := birthTime(st); at != 0 {
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

// stable is set in the ids that are the same in every server. Other ids are smaller, except for trees.
const stable = 1 << 62

// Forget subtracts n lookups. It ignores surplus lookups and unknown nodes.
func (t *Table) Forget(id, n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	node := t.nodes[id]
	if node == nil {
		return
	}
	node.lookups -= min(n, node.lookups)
	t.collect(node)
}

// Known returns the node of the file name in parent, held, or nil if the guest does not know it.
func (t *Table) Known(parent *Ref, name string) *Ref {
	var st unix.Statx_t
	if StatAt(parent.FD, name, &st) != nil {
		return nil
	}
	t.mu.Lock()
	k, err := t.keyOf(parent.n.tree, &st)
	n := t.files[k]
	if err != nil || n == nil || n.fd < 0 && n.born != birthTime(&st) {
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

// Lookups returns the number of a node's lookups that the guest has not forgotten. It is for tests.
func (t *Table) Lookups(id uint64) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.nodes[id]; n != nil {
		return n.lookups
	}
	return 0
}
