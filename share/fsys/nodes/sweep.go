package nodes

import (
	"golang.org/x/sys/unix"
)

// mostSwept bounds the files that one Sweep looks at, from each end of the list.
const mostSwept = 4096

// Sweep closes the descriptors of files that the host has removed and the guest has not open. Else such a
// file would take room on the host's disk until the guest forgets it, which it may never do.
func (t *Table) Sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.idle.head
	for range mostSwept {
		if n == nil {
			return
		}
		next := n.next
		t.sweep(n)
		n = next
	}
	n = t.idle.tail
	for range mostSwept {
		if n == nil {
			return
		}
		last := n.prev
		t.sweep(n)
		n = last
	}
}

// sweep asks no server of a network: what it has is not this host's room.
func (t *Table) sweep(n *Node) {
	var st unix.Statx_t
	const flags = unix.AT_EMPTY_PATH | unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
	if unix.Statx(int(n.fd), "", flags, unix.STATX_NLINK, &st) == nil && st.Nlink == 0 {
		t.shut(n)
	}
}
