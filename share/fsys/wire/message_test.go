package wire_test

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// The opcodes of requests, as <linux/fuse.h> has them.
const (
	lookup, forget, getattr, setattr, readlink, symlink      = 1, 2, 3, 4, 5, 6
	mknod, mkdir, unlink, rmdir, rename, link                = 8, 9, 10, 11, 12, 13
	open, read, write, statfs, release, fsync                = 14, 15, 16, 17, 18, 20
	setxattr, getxattr, listxattr, removexattr, flush, greet = 21, 22, 23, 24, 25, 26
	opendir, readdir, releasedir, getlk, setlk, setlkw       = 27, 28, 29, 31, 32, 33
	create, interrupt, destroy, batchForget, fallocate       = 35, 36, 38, 42, 43
	readdirplus, rename2, lseek, copyRange, tmpfile          = 44, 45, 46, 47, 51
)

// message returns a request for node. Its numbers and names follow the header.
func message(opcode uint32, node uint64, parts ...any) []byte {
	var b []byte
	b = append(b, make([]byte, 40)...)
	for _, part := range parts {
		switch v := part.(type) {
		case uint32:
			b = binary.NativeEndian.AppendUint32(b, v)
		case uint64:
			b = binary.NativeEndian.AppendUint64(b, v)
		case string:
			b = append(append(b, v...), 0)
		case []byte:
			b = append(b, v...)
		}
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint32(b[4:], opcode)
	binary.NativeEndian.PutUint64(b[8:], uint64(opcode)<<32|node)
	binary.NativeEndian.PutUint64(b[16:], node)
	return b
}

// hello is the greeting of a kernel.
func hello() []byte {
	return message(greet, 0, uint32(7), uint32(38), uint32(128<<10), ^uint32(0), ^uint32(0), make([]byte, 44))
}

// script has requests in the form for the fuzzer: opcode, node and length in one byte each, and the bytes after the
// header.
func script(messages ...[]byte) []byte {
	var b []byte
	for _, m := range messages {
		body := m[40:min(len(m), 40+255)]
		b = append(b, m[4], m[16], byte(len(body)))
		b = append(b, body...)
	}
	return b
}

// guestIDs are the ids that a guest got, which differ each time. A script has their indexes, from 2 on; 1 is the root.
type guestIDs []uint64

// real returns the id for an index. From 250 on they are unknown ids.
func (ids guestIDs) real(place uint64) uint64 {
	switch {
	case place >= 2 && place-2 < uint64(len(ids)):
		return ids[place-2]
	case place >= 250 && place < 256:
		return -place
	}
	return place
}

// learn adds the id in an answer about a file.
func (ids *guestIDs) learn(opcode uint32, answer []byte) {
	if !slices.Contains([]uint32{lookup, symlink, mknod, mkdir, link, create, tmpfile}, opcode) || len(answer) < 8 {
		return
	}
	if id := binary.NativeEndian.Uint64(answer); id != 0 && !slices.Contains(*ids, id) {
		*ids = append(*ids, id)
	}
}

// fit puts real ids into a message.
func (ids guestIDs) fit(m []byte) {
	at := map[uint32][]int{link: {40}, rename: {40}, rename2: {40}, copyRange: {56}, batchForget: {48, 64}}
	for _, offset := range append([]int{16}, at[binary.NativeEndian.Uint32(m[4:])]...) {
		if len(m) >= offset+8 {
			binary.NativeEndian.PutUint64(m[offset:], ids.real(binary.NativeEndian.Uint64(m[offset:])))
		}
	}
}

// messages returns the messages of a script, with indexes as ids.
func messages(script []byte) [][]byte {
	var all [][]byte
	for len(script) >= 3 {
		opcode, node, size := uint32(script[0]), uint64(script[1]), int(script[2])
		script = script[3:]
		size = min(size, len(script))
		all = append(all, message(opcode, node, bytes.Clone(script[:size])))
		script = script[size:]
	}
	return all
}
