package wire

import (
	"encoding/binary"
	"errors"
	"io"
	"sync/atomic"
	"unsafe"

	"github.com/bulkhead-project/bulkhead/channel/frame"
)

// reader is the forwarder's side of the ring. Except for atomics, it belongs to the thread that reads the host's
// messages.
type reader struct {
	disk io.ReaderAt
	buf  []byte // page-aligned buffer for one room
	on   bool   // in this session
	read atomic.Uint32
}

// reset drops the former session's state.
func (r *reader) reset() {
	r.on = false
	r.read.Store(0)
}

// room returns the buffer for one room: its data is page-aligned as on the disk, so that the disk and FUSE copy whole
// pages.
func (r *reader) room() []byte {
	if r.buf == nil {
		b := make([]byte, ringRoom+page)
		past := int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % page)
		r.buf = b[page-past:][:ringRoom]
	}
	return r.buf
}

// isOfSession reports whether the disk is the memory of this session's server.
func (r *reader) isOfSession(epoch uint64) bool {
	b := r.room()[:sector]
	n, _ := r.disk.ReadAt(b, 0) // an error means the same as another disk
	return n == len(b) && [markSize]byte(b) == mark(epoch, 0, 0)
}

var errPlace = errors.New("no answer is there")

// answer reads the answer that a note refers to, and returns it with its head.
func (r *reader) answer(note []byte, epoch uint64) ([]byte, error) {
	at, head := int(binary.NativeEndian.Uint32(note[1:])), note[1+4:]
	data := lengthOf(head) - minReply
	if at%page != 0 || at > RingSize-ringRoom || data < 0 || data > MaxData {
		return nil, errPlace
	}
	b := r.room()
	end := ringData + sectors(data)
	// One read: if the disk is replaced meanwhile, a mark is missing at one end or at both.
	n, err := r.disk.ReadAt(b[ringMark:end+sector], int64(at+ringMark))
	if n < end+sector-ringMark {
		return nil, errors.Join(errPlace, err)
	}
	around := mark(epoch, uniqueOf(head), data)
	if [markSize]byte(b[ringMark:]) != around || [markSize]byte(b[end:]) != around || [minReply]byte(b[ringHead:]) != [minReply]byte(head) {
		return nil, errPlace
	}
	return b[ringHead : ringData+data], nil
}

// noted handles a note of the host.
func (g *guest) noted(note []byte) error {
	r := &g.ring
	switch {
	case r.disk == nil || len(note) == 0:
	case note[0] == noteOffer && !r.on:
		if r.isOfSession(g.epoch) {
			r.on = true
			g.enqueue(frame.Note, g.epoch, noteUse)
		}
	case note[0] == notePlace && len(note) == placeSize && r.on:
		message, err := r.answer(note, g.epoch)
		if err != nil {
			// Later answers in the ring are sent again too, with this one.
			r.on = false
			var n [2]byte
			binary.NativeEndian.PutUint16(n[:], uint16(r.read.Load()))
			g.enqueue(frame.Note, g.epoch, noteLost, n[0], n[1])
			return nil //nolint:nilerr // the host is notified
		}
		r.read.Add(1)
		if g.wanted(message) {
			return g.answer(message)
		}
	}
	return nil
}

// addReadCount adds the number of answers read to a request. The kernel leaves the field 0.
func (r *reader) addReadCount(request []byte) {
	if n := r.read.Load(); n != 0 {
		binary.NativeEndian.PutUint16(request[readCount:], uint16(n))
	}
}
