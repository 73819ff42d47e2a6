package netlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// message is a request being built.
type message struct{ b []byte }

func newMessage(kind, flags uint16) *message {
	b := make([]byte, unix.SizeofNlMsghdr, 128)
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	return &message{b: b}
}

func (m *message) add(p []byte) {
	m.b = append(m.b, p...)
	m.b = append(m.b, make([]byte, align(len(m.b))-len(m.b))...)
}

// attr adds an attribute: its length, its kind, its value.
func (m *message) attr(kind uint16, value []byte) {
	m.b = binary.NativeEndian.AppendUint16(m.b, uint16(unix.SizeofRtAttr+len(value)))
	m.b = binary.NativeEndian.AppendUint16(m.b, kind)
	m.add(value)
}

func (m *message) bytes(seq uint32) []byte {
	binary.NativeEndian.PutUint32(m.b, uint32(len(m.b)))
	binary.NativeEndian.PutUint32(m.b[8:], seq)
	return m.b
}

func align(n int) int { return (n + 3) &^ 3 }
