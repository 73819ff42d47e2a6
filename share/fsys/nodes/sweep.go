package nodes

import (
	"golang.org/x/sys/unix"
)

// mostSwept bounds the files that one Sweep checks, from each end of the list.
const mostSwept = 4096

// Sweep closes the descriptors of files that were removed on the host and are not open in the guest. Such a file would
// use disk space until the guest forgets it, which may never happen.
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

// sweep checks one file. It does not contact network servers: their files use no space of this host.
func (t *Table) sweep(n *Node) {
	var st unix.Statx_t
	const flags = unix.AT_EMPTY_PATH | unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
	if unix.Statx(int(n.fd), "", flags, unix.STATX_NLINK, &st) == nil && st.Nlink == 0 {
		t.closeFD(n)
	}
}
