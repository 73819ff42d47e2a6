package nodes

// settle does what follows from a node's counts: its descriptor may be closed or not, its memory be given back or
// not, and its parents' as well.
func (t *Table) settle(n *Node) {
	for n != nil {
		if n.using > 0 {
			t.idle.remove(n)
			return
		}
		if n.tree.dead {
			t.shut(n)
		}
		if n.lookups > 0 || n.kids > 0 || n.opens > 0 || n == n.tree.root && !n.tree.dead {
			t.rest(n)
			return
		}
		t.shut(n)
		if t.nodes[n.id] == n {
			delete(t.nodes, n.id)
		}
		if t.files[n.key] == n {
			delete(t.files, n.key)
		}
		n = t.orphan(n)
	}
}

// rest puts a node that nobody uses at the end of the list, if its descriptor may be closed.
func (t *Table) rest(n *Node) {
	t.idle.remove(n)
	if n.fd >= 0 && !n.pinned && n.opens == 0 {
		t.idle.push(n)
	}
}

// orphan takes a node's parent away, and is the parent if it has a child less.
func (t *Table) orphan(n *Node) *Node {
	up := n.parent
	n.parent, n.name = nil, ""
	if up != nil {
		up.kids--
	}
	return up
}

// rename gives a node another name, or none. A parent is never below its child: what makes it one has been moved by
// the host, and loses its name.
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
	if old := t.orphan(n); old != nil {
		t.settle(old)
	}
	n.parent, n.name = parent, name
}

// unwind takes the parent of the node below n that is above parent, if there is one.
func (t *Table) unwind(n, parent *Node) {
	for up := parent; up != nil; up = up.parent {
		if up.parent == n {
			t.orphan(up)
			return
		}
	}
}
