package wire

import (
	"bytes"
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"
)

// What the forwarder answers itself, since the answer is known and the way to the host and back takes the guest
// longer than all else that a request costs.

// The places in a request's body, which begins at minRequest.
const (
	lockFlags = minRequest + 8 + 8 + 24 // of fuse_lk_in
	xattrName = minRequest + 8          // behind fuse_getxattr_in
)

const flock = 1 // FUSE_LK_FLOCK

// capability is the attribute that the kernel asks for before the first write to a file. No server has it.
var capability = []byte("security.capability\x00")

// maxLocked bounds the files of which locks are known. With more every close is told to the server.
const maxLocked = 4096

// local is what a request is answered without asking the host; ok is false of requests that the host answers.
// The caller holds mu.
func (g *guest) local(request []byte) (errno unix.Errno, ok bool) {
	switch node := nodeOf(request); codeOf(request) {
	case opFlush:
		// It ends the locks that a process has on a file, and does nothing else.
		_, locked := slices.BinarySearch(g.locked, node)
		return 0, !locked && len(g.locked) < maxLocked
	case opSetLock, opSetLockWait:
		if len(request) >= lockFlags+4 && binary.NativeEndian.Uint32(request[lockFlags:])&flock == 0 {
			if at, known := slices.BinarySearch(g.locked, node); !known && len(g.locked) < maxLocked {
				g.locked = slices.Insert(g.locked, at, node)
			}
		}
	case opGetXattr:
		return unix.ENODATA, len(request) >= xattrName && bytes.Equal(request[xattrName:], capability)
	}
	return 0, false
}

// told tells of a request that is answered at once and passed on as one without an answer: the kernel waits for
// none of it.
func told(op uint32) bool { return op == opRelease || op == opReleaseDir }

// silence makes a request one that gets no reply.
func silence(request []byte) { binary.NativeEndian.PutUint64(request[8:], 0) }

// reply is one without a body, with an error or 0.
func reply(b []byte, unique uint64, errno unix.Errno) []byte {
	b = binary.NativeEndian.AppendUint32(b, minReply)
	b = binary.NativeEndian.AppendUint32(b, negative(errno))
	return binary.NativeEndian.AppendUint64(b, unique)
}

// negative is an error as the kernel has it in a reply.
func negative(errno unix.Errno) uint32 { return uint32(-int32(errno)) }
