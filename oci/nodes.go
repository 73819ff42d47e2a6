package oci

import "os"

// Node is a character device with the same number and meaning on the host and in a VM.
type Node struct {
	Path         string
	Major, Minor int64
	Mode         os.FileMode
	// Common devices are in every container, at Path.
	Common bool
}

// nodes are all such devices.
var nodes = []Node{
	{"/dev/null", 1, 3, 0o666, true},
	{"/dev/zero", 1, 5, 0o666, true},
	{"/dev/full", 1, 7, 0o666, true},
	{"/dev/random", 1, 8, 0o666, true},
	{"/dev/urandom", 1, 9, 0o666, true},
	{"/dev/tty", 5, 0, 0o666, true},
	{"/dev/kmsg", 1, 11, 0o644, false}, // the VM's own kernel
	{"/dev/fuse", 10, 229, 0o666, false},
	{"/dev/net/tun", 10, 200, 0o666, false},
}

// NodeAt returns the device at a path.
func NodeAt(path string) (Node, bool) {
	for _, n := range nodes {
		if n.Path == path {
			return n, true
		}
	}
	return Node{}, false
}

// NodeOf returns the character device with a number.
func NodeOf(major, minor int64) (Node, bool) {
	for _, n := range nodes {
		if n.Major == major && n.Minor == minor {
			return n, true
		}
	}
	return Node{}, false
}
