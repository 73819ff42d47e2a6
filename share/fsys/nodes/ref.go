package nodes

import (
	"golang.org/x/sys/unix"
)

// Ref keeps a node and its open descriptor until it is released.
type Ref struct {
	// FD is the O_PATH descriptor.
	FD int

	n *Node
	t *Table
}

// ID returns the guest's id of the node.
func (r *Ref) ID() uint64 { return r.n.id }

// Type returns the S_IFMT part of the file's mode.
func (r *Ref) Type() uint32 { return r.n.Type }

// Tree returns the node's tree.
func (r *Ref) Tree() *Tree { return r.n.tree }

// Release ends the use of the descriptor.
func (r *Ref) Release() {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	r.n.using--
	r.t.collect(r.n)
}

// LookedUp counts a lookup, which the guest will forget.
func (r *Ref) LookedUp() {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	r.n.lookups++
}

// Pin marks the file as nameless. The descriptor stays open until the guest forgets the node.
func (r *Ref) Pin() {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	r.n.pinned = true
	r.t.rename(r.n, nil, "")
}

// Named sets the file's name.
func (r *Ref) Named(parent *Ref, name string) {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	r.t.rename(r.n, parent.n, name)
}

// Opened counts a handle. While a node has handles, its descriptor stays open, so that an open file that was removed
// keeps its attributes.
func (r *Ref) Opened() { r.count(1) }

// Closed uncounts a handle.
func (r *Ref) Closed() { r.count(-1) }

func (r *Ref) count(n int32) {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	r.n.opens += n
	r.t.collect(r.n)
}

// Seen sets the version of the data that the guest has cached, and reports whether it was the same. 0 never matches.
func (r *Ref) Seen(mark uint64) bool {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	same := mark != 0 && r.n.seen == mark
	r.n.seen = mark
	return same
}

// maxDepth bounds the parents that are opened to open one node.
const maxDepth = 4096

// reopen opens a descriptor for the node of r, if it has none.
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
	if err == nil && (k != r.n.key || birthTime(&st) != r.n.born) {
		err = unix.ESTALE
	}
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	return t.setFD(r, fd)
}

// setFD sets the descriptor of r's node, unless it has one already.
func (t *Table) setFD(r *Ref, fd int) error {
	defer func() { r.FD = int(r.n.fd) }()
	if r.n.fd >= 0 {
		_ = unix.Close(fd)
		return nil
	}
	if !t.makeRoom() {
		_ = unix.Close(fd)
		return unix.ENFILE
	}
	r.n.fd = int32(fd)
	t.open++
	return nil
}

// makeRoom closes idle descriptors until there is space for one more.
func (t *Table) makeRoom() bool {
	for t.open >= t.limits.Descriptors {
		n := t.idle.first()
		if n == nil {
			return false
		}
		t.closeFD(n)
	}
	return true
}

// closeFD closes a node's descriptor.
func (t *Table) closeFD(n *Node) {
	t.idle.remove(n)
	if n.fd >= 0 {
		_ = unix.Close(int(n.fd))
		n.fd = -1
		t.open--
	}
}
