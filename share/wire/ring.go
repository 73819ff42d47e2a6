package wire

import "encoding/binary"

// A large answer may lie in a memory that the server writes and the guest reads as a disk, the ring. QEMU passes at
// most 4 KiB at a time through the port, but a disk's data all at once. The port carries a note with the place of the
// answer.
//
// The memory starts with the session's mark. By it the guest recognises the disk as this server's memory before it
// agrees to use it. Then come rooms for one answer each:
//
//	... | mark | ... | head of the answer | its data ... | mark
//	                                      ^ on a page
//
// If another disk has taken the slot, the marks differ. The guest reports that, and gets the answer again through the
// port, like all others of the session.
//
// With each request the guest reports the number of answers that it has read since the session started, in two bytes of
// the head that FUSE leaves empty. It reads them in the order of their notes. A guest that does not report it gets its
// answers through the port.

const (
	page   = 4 << 10
	sector = 512 // unit of the guest's reads of the disk

	// ringData is the start of a room's data, ringHead the start of its message's head.
	ringData = page
	ringHead = ringData - minReply
	// ringMark is the start of the guest's read of a room, with a mark.
	ringMark = page - sector
	// ringRoom is the distance between rooms.
	ringRoom = ringData + MaxData + page
	// ringRooms is the number of rooms. The first follows a page.
	ringRooms = (RingSize - page) / ringRoom

	markSize  = 32
	readCount = 38 // offset of the number of answers read, in a request
)

// RingSize is the length of the memory in bytes.
const RingSize = 8 << 20

// RingLeast is the shortest data that uses the ring: less is quicker through the port.
const RingLeast = 64 << 10

// The notes, by their first byte.
const (
	noteOffer = 1 // to the guest: read the ring's first mark
	noteUse   = 2 // to the host: the ring is in use
	notePlace = 3 // to the guest: an answer is in the room at (4 bytes), with the head (16 bytes)
	noteLost  = 4 // to the host: the ring is lost after (2 bytes) answers
)

const placeSize = 1 + 4 + minReply

var ringMagic = [8]byte{'b', 'k', 'h', 'r', 'i', 'n', 'g', 1}

// mark returns the mark before and after an answer, and with zeros the mark at the ring's start.
func mark(epoch, unique uint64, length int) (m [markSize]byte) {
	copy(m[:], ringMagic[:])
	binary.NativeEndian.PutUint64(m[8:], epoch)
	binary.NativeEndian.PutUint64(m[16:], unique)
	binary.NativeEndian.PutUint64(m[24:], uint64(length))
	return m
}

// sectors rounds n up to whole sectors.
func sectors(n int) int { return (n + sector - 1) &^ (sector - 1) }
