package launcher

import (
	"encoding/binary"
	"strings"

	"golang.org/x/sys/unix"
)

// message is a request for the launcher. guest/launcher/launcher.h has its layout.
type message struct {
	uid, gid, umask, flags uint32
	namespaces             uint32 // to join, or to make for a container
	sets                   [5]uint64
	limits                 [][3]uint64 // resource, soft, hard
	filter                 []byte
	groups                 []uint32
	cwd                    string
	args, env              []string

	// The rest is for a container.
	names          [4]string // root, host name, domain name, keyring
	mounts         []mount
	nodes          []node
	masked, closed []string // paths
}

// mount is a mount of a container.
type mount struct {
	flags                      uint64
	source, target, kind, data string
}

// node is a device of a container.
type node struct {
	directory, name        string
	mode, device, uid, gid uint32
}

// strings returns all strings, in their order.
func (m *message) strings() []string {
	words := append(append([]string{m.cwd}, m.args...), m.env...)
	if m.flags&create == 0 {
		return words
	}
	words = append(words, m.names[:]...)
	for _, x := range m.mounts {
		words = append(words, x.source, x.target, x.kind, x.data)
	}
	for _, n := range m.nodes {
		words = append(words, n.directory, n.name)
	}
	return append(append(words, m.masked...), m.closed...)
}

// marshal encodes the message.
func (m *message) marshal() ([]byte, error) {
	words := m.strings()
	text := strings.Join(words, "\x00") + "\x00"
	size := headerSize + 24*len(m.limits) + len(m.filter) + 8*len(m.mounts) + 16*len(m.nodes) + 4*len(m.groups) + len(text)
	switch {
	case len(m.args)+len(m.env) > maxStrings || strings.Count(text, "\x00") != len(words):
		return nil, decline("too many arguments and variables, or a NUL byte in a text")
	case len(m.limits) > maxLimits:
		return nil, decline("%d limits", len(m.limits))
	case len(m.mounts)+len(m.masked)+len(m.closed) > maxMounts || len(m.nodes) > maxNodes:
		return nil, decline("%d mounts, %d paths, %d devices", len(m.mounts), len(m.masked)+len(m.closed), len(m.nodes))
	case size > maxMessage:
		return nil, decline("%d bytes", size)
	}
	out := make([]byte, 0, size)
	put := func(values ...uint32) {
		for _, v := range values {
			out = binary.LittleEndian.AppendUint32(out, v)
		}
	}
	wide := func(values ...uint64) {
		for _, v := range values {
			out = binary.LittleEndian.AppendUint64(out, v)
		}
	}
	put(version, uint32(size), m.uid, m.gid, m.umask, m.flags, m.namespaces, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW)
	wide(m.sets[:]...)
	put(uint32(len(m.limits)), uint32(len(m.filter)/instruction), uint32(len(m.groups)), uint32(len(m.args)),
		uint32(len(m.env)), uint32(len(text)))
	put(uint32(len(m.mounts)), uint32(len(m.nodes)), uint32(len(m.masked)), uint32(len(m.closed)))
	for _, l := range m.limits {
		wide(l[:]...)
	}
	out = append(out, m.filter...)
	for _, x := range m.mounts {
		wide(x.flags)
	}
	for _, n := range m.nodes {
		put(n.mode, n.device, n.uid, n.gid)
	}
	put(m.groups...)
	return append(out, text...), nil
}
