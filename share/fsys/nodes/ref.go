package nodes

import (
	"golang.org/x/sys/unix"
)

// Ref keeps a node, and its descriptor open, until it is released.
type Ref struct {
	// FD is the O_PATH descriptor.
	FD int

	n *Node
	t *Table
}

// ID is what the guest calls the node.
func (r *Ref) ID() uint64 { return r.n.id }

// Type is the S_IFMT part of the file's mode.
func (r *Ref) Type() uint32 { return r.n.Type }

// Tree is where the node is.
func (r *Ref) Tree() *Tree { return r.n.tree }

// Release ends the use of the descriptor.
func (r *Ref) Release() {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	r.n.using--
	r.t.settle(r.n)
}

// LookedUp counts a lookup, which the guest has to forget.
func (r *Ref) LookedUp() {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	r.n.lookups++
}

// Pin says that the file has no name any more. The descriptor stays open until the guest forgets the node.
func (r *Ref) Pin() {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	r.n.pinned = true
	r.t.rename(r.n, nil, "")
}

// Named says that the file has a name.
func (r *Ref) Named(parent *Ref, name string) {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	r.t.rename(r.n, parent.n, name)
}

// Opened counts a handle. The node's descriptor stays open while it has one, so that an open file that was removed
// keeps its attributes.
func (r *Ref) Opened() { r.count(1) }

// Closed is the end of a handle.
func (r *Ref) Closed() { r.count(-1) }

func (r *Ref) count(n int32) {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	r.n.opens += n
	r.t.settle(r.n)
}

// Seen sets what the guest's pages of the file are of, and is whether they were of the same. 0 is never the same.
func (r *Ref) Seen(mark uint64) bool {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	same := mark != 0 && r.n.seen == mark
	r.n.seen = mark
	return same
}

// maxDepth bounds the parents that are opened to open one node.
const maxDepth = 4096

// reopen gives the node of r a descriptor, if it has none.
func (t *Table) reopen(r *Ref, depth int) error {
	if r.FD >= 0 {
		return nil
	}
	t.mu.Lock()
	parent, name := r.n.parent, r.n.name
	if parent == nil || depth > maxDepth {
		t.mu.Unlock()
		return unix.ESTALE
	}
	up := t.use(parent)
	t.mu.Unlock()
	defer up.Release()
	if err := t.reopen(up, depth+1); err != nil {
		return err
	}
	fd, err := OpenAt(up.FD, name)
	if err == unix.ENOENT || err == unix.ENOTDIR { //nolint:errorlint // the kernel's own numbers
		return unix.ESTALE
	}
	if err != nil {
		return err
	}
	var st unix.Statx_t
	if err := Stat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	k, err := t.keyOf(r.n.tree, &st)
	if err == nil && (k != r.n.key || born(&st) != r.n.born) {
		err = unix.ESTALE
	}
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	return t.give(r, fd)
}

// give gives the node of r the descriptor, unless another has been quicker.
func (t *Table) give(r *Ref, fd int) error {
	defer func() { r.FD = int(r.n.fd) }()
	if r.n.fd >= 0 {
		_ = unix.Close(fd)
		return nil
	}
	if !t.room() {
		_ = unix.Close(fd)
		return unix.ENFILE
	}
	r.n.fd = int32(fd)
	t.open++
	return nil
}

// room closes idle descriptors until there is room for one more.
func (t *Table) room() bool {
	for t.open >= t.limits.Descriptors {
		n := t.idle.first()
		if n == nil {
			return false
		}
		t.shut(n)
	}
	return true
}

// shut closes a node's descriptor.
func (t *Table) shut(n *Node) {
	t.idle.remove(n)
	if n.fd >= 0 {
		_ = unix.Close(int(n.fd))
		n.fd = -1
		t.open--
	}
}
