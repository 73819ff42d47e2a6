package nodes

// list is a list of the nodes with a descriptor that may be closed, the least recently used first.
type list struct{ head, tail *Node }

func (l *list) first() *Node { return l.head }

// push appends n, which must not be in the list.
func (l *list) push(n *Node) {
	n.prev, n.next, n.listed = l.tail, nil, true
	if l.tail == nil {
		l.head = n
	} else {
		l.tail.next = n
	}
	l.tail = n
}

// remove removes n, if it is in the list.
func (l *list) remove(n *Node) {
	if !n.listed {
		return
	}
	if n.prev == nil {
		l.head = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		l.tail = n.prev
	} else {
		n.next.prev = n.prev
	}
	n.prev, n.next, n.listed = nil, nil, false
}
