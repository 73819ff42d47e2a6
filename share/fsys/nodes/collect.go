package nodes

// collect applies a node's counts: it lists or unlists the descriptor for closing, or removes the node. It then does
// the same for its parents.
func (t *Table) collect(n *Node) {
	for n != nil {
		if n.using > 0 {
			t.idle.remove(n)
			return
		}
		if n.tree.dead {
			t.closeFD(n)
		}
		if n.lookups > 0 || n.kids > 0 || n.opens > 0 || n == n.tree.root && !n.tree.dead {
			t.markIdle(n)
			return
		}
		t.closeFD(n)
		if t.nodes[n.id] == n {
			delete(t.nodes, n.id)
		}
		if t.files[n.key] == n {
			delete(t.files, n.key)
		}
		n = t.detach(n)
	}
}

// markIdle appends a node that is not in use to the list, if its descriptor may be closed.
func (t *Table) markIdle(n *Node) {
	t.idle.remove(n)
	if n.fd >= 0 && !n.pinned && n.opens == 0 {
		t.idle.push(n)
	}
}

// detach removes a node from its parent, and returns the parent.
func (t *Table) detach(n *Node) *Node {
	up := n.parent
	n.parent, n.name = nil, ""
	if up != nil {
		up.kids--
	}
	return up
}

// rename changes a node's name, or removes it. A parent must never be below its child: if the host has moved it there,
// the node between loses its name.
func (t *Table) rename(n, parent *Node, name string) {
	if n == n.tree.root || n == parent {
		return
	}
	if parent != nil {
		n.pinned = false
	}
	if n.parent == parent {
		n.name = name
		return
	}
	if parent != nil {
		if n.kids > 0 {
			t.unwind(n, parent)
		}
		parent.kids++
	}
	if old := t.detach(n); old != nil {
		t.collect(old)
	}
	n.parent, n.name = parent, name
}

// unwind removes the parent of the node between n and parent, if parent is below n.
func (t *Table) unwind(n, parent *Node) {
	for up := parent; up != nil; up = up.parent {
		if up.parent == n {
			t.detach(up)
			return
		}
	}
}
