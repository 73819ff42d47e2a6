package wire

import (
	"bytes"
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"
)

// The forwarder answers some requests itself: the answer is known, and the way to the host and back takes longer than
// everything else.

// The offsets in a request. Its body starts at minRequest.
const (
	lockFlags = minRequest + 8 + 8 + 24 // of fuse_lk_in
	xattrName = minRequest + 8          // behind fuse_getxattr_in
)

const flock = 1 // FUSE_LK_FLOCK

// capability is the attribute that the kernel reads before the first write to a file. No server has it.
var capability = []byte("security.capability\x00")

// maxLocked bounds the files with known locks. Beyond it every close is sent to the server.
const maxLocked = 4096

// local returns the error number for a request that the forwarder answers; ok is false for other requests. The caller
// holds mu.
func (g *guest) local(request []byte) (errno unix.Errno, ok bool) {
	switch node := nodeOf(request); codeOf(request) {
	case opFlush:
		// A flush only ends the locks of a process on a file.
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

// repliesAtOnce reports whether a request is answered at once and passed on without a reply: the kernel does not wait
// for it.
func repliesAtOnce(op uint32) bool { return op == opRelease || op == opReleaseDir }

// silence marks a request as one without a reply.
func silence(request []byte) { binary.NativeEndian.PutUint64(request[8:], 0) }

// reply appends a reply without a body, with an error or 0.
func reply(b []byte, unique uint64, errno unix.Errno) []byte {
	b = binary.NativeEndian.AppendUint32(b, minReply)
	b = binary.NativeEndian.AppendUint32(b, negative(errno))
	return binary.NativeEndian.AppendUint64(b, unique)
}

// negative returns an error in the form of a reply.
func negative(errno unix.Errno) uint32 { return uint32(-int32(errno)) }
