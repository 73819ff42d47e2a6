package wire

import "encoding/binary"

// A large answer may lie in a memory that the server writes to and the guest reads as a disk, the
// ring: through the port QEMU hands the guest 4 KiB at a time, from a disk all at once. The port
// carries a note of where the answer lies.
//
// The memory begins with the session's mark, by which the guest knows that the disk is this
// server's memory, before it says that it reads from it. Then come rooms for one answer each:
//
//	... | mark | ... | head of the answer | its data ... | mark
//	                                      ^ on a page
//
// A disk that is not the server's any more, for another disk has its slot, has other marks: the
// guest says so, and is answered anew through the port, as it is for the rest of the session.
//
// Which rooms it has read the guest says with each request, in two bytes of its head that FUSE
// leaves empty: how many answers it has read since the session began. They are read in the order
// of their notes. A guest that does not say so is answered through the port.

const (
	page   = 4 << 10
	sector = 512 // what is read of the disk begins and ends with one

	// ringData is where a room's data begins, ringHead the head of its message.
	ringData = page
	ringHead = ringData - minReply
	// ringMark is where what the guest reads of a room begins, with a mark.
	ringMark = page - sector
	// ringRoom is how far the rooms lie apart.
	ringRoom = ringData + MaxData + page
	// ringRooms is how many there are, the first behind a page.
	ringRooms = (RingSize - page) / ringRoom

	markSize  = 32
	readCount = 38 // where a request says how many answers were read
)

// RingSize is the length of the memory in bytes.
const RingSize = 8 << 20

// RingLeast is the shortest data that travels by the ring: less is quicker through the port.
const RingLeast = 64 << 10

// The notes, by their first byte.
const (
	noteOffer = 1 // to the guest: read the ring's first mark
	noteUse   = 2 // to the host: it is yours
	notePlace = 3 // to the guest: an answer is in the room at (4 bytes), its head is (16 bytes)
	noteLost  = 4 // to the host: the ring is not yours any more, of which (2 bytes) answers were read
)

const placeSize = 1 + 4 + minReply

var ringMagic = [8]byte{'b', 'k', 'h', 'r', 'i', 'n', 'g', 1}

// mark is before and after an answer, and at the ring's beginning with zeros for the answer.
func mark(epoch, unique uint64, length int) (m [markSize]byte) {
	copy(m[:], ringMagic[:])
	binary.NativeEndian.PutUint64(m[8:], epoch)
	binary.NativeEndian.PutUint64(m[16:], unique)
	binary.NativeEndian.PutUint64(m[24:], uint64(length))
	return m
}

// sectors is n, or what is more to the next whole sector.
func sectors(n int) int { return (n + sector - 1) &^ (sector - 1) }
