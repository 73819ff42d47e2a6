package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/bulkhead-project/bulkhead/channel/frame"
)

// ring is the server's side of a session's ring.
type ring struct {
	mem  []byte
	lost chan struct{} // holds one value, when the guest has stopped reading

	mu   sync.Mutex // guards the following fields; never held while waiting
	on   bool       // the guest reads the ring
	over bool       // the guest will not read it again in this session
	free []int      // rooms
	sent []placed   // answers that the guest may not have read, in order
	read uint16     // number of answers read
}

// placed is an answer in the ring: the start of its room, and its length with its head.
type placed struct{ at, n int }

// Room is space for an answer, in the ring or in memory of its own.
type Room struct {
	Buf []byte
	at  int // its start in the ring; 0 if it is not there
}

// Offer makes the guest read large answers from mem, which has RingSize bytes, all zero or a former session's. It is
// called once, before the first Room.
func (h *Host) Offer(mem []byte) error {
	if len(mem) != RingSize {
		return fmt.Errorf("the ring has %d bytes instead of %d", len(mem), RingSize)
	}
	r := &ring{mem: mem, lost: make(chan struct{}, 1)}
	for i := range ringRooms {
		r.free = append(r.free, page+(ringRooms-1-i)*ringRoom) // the first room is taken first
	}
	first := mark(h.epoch, 0, 0)
	copy(mem, first[:])
	h.ring = r
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.note(noteOffer)
}

// Room returns space for an answer of at most size bytes. The caller passes it to Send or Drop.
func (h *Host) Room(size int) Room {
	if h.ring != nil && size >= RingLeast && size <= MaxMessage {
		if at := h.ring.acquire(); at != 0 {
			end := at + ringHead + min(size, minReply+MaxData)
			return Room{Buf: h.ring.mem[at+ringHead : end : end], at: at}
		}
	}
	return Room{Buf: make([]byte, size)}
}

// Drop frees an unused room.
func (h *Host) Drop(r Room) {
	if r.at != 0 {
		h.ring.release(r.at)
	}
}

// Send sends the first n bytes of a room, and frees it.
func (h *Host) Send(r Room, n int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.at != 0 && n >= RingLeast && n <= len(r.Buf) && lengthOf(r.Buf) == n && h.ring.place(r.at, h.epoch, n) {
		place := [4]byte{}
		binary.NativeEndian.PutUint32(place[:], uint32(r.at))
		return h.note(notePlace, place[:], r.Buf[:minReply])
	}
	defer h.Drop(r)
	return h.reply(r.Buf[:n])
}

// Resend sends again the answers that the guest could not read, once, or returns when done is closed.
func (h *Host) Resend(done <-chan struct{}) error {
	if h.ring == nil {
		return nil
	}
	select {
	case <-h.ring.lost:
	case <-done:
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	for _, p := range h.ring.unread() {
		err = errors.Join(err, h.reply(h.ring.mem[p.at+ringHead:][:p.n]))
	}
	return err
}

// note sends a note. The caller holds mu.
func (h *Host) note(kind byte, parts ...[]byte) error {
	_, err := h.conn.Write(frame.Append(nil, frame.Note, h.epoch, append([][]byte{{kind}}, parts...)...))
	return err
}

// onNote handles a note of the guest about the ring, which may be anything.
func (r *ring) onNote(note []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over || len(note) == 0:
	case note[0] == noteUse:
		r.on = true
	case note[0] == noteLost && len(note) == 3:
		r.freeRead(binary.NativeEndian.Uint16(note[1:]))
		r.on, r.over = false, true
		r.lost <- struct{}{}
	}
}

// updateReads reads the number of answers read from a request, and clears it there.
func (r *ring) updateReads(request []byte) {
	n := binary.NativeEndian.Uint16(request[readCount:])
	binary.NativeEndian.PutUint16(request[readCount:], 0)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.freeRead(n)
}

// freeRead frees the rooms of answers that were read. It ignores a number larger than the answers sent.
func (r *ring) freeRead(n uint16) {
	read := int(n - r.read)
	if r.over || read > len(r.sent) {
		return
	}
	for _, p := range r.sent[:read] {
		r.free = append(r.free, p.at)
	}
	r.sent = r.sent[:copy(r.sent, r.sent[read:])]
	r.read = n
}

// acquire returns a free room, or 0.
func (r *ring) acquire() (at int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := len(r.free) - 1
	if !r.on || last < 0 {
		return 0
	}
	at, r.free = r.free[last], r.free[:last]
	return at
}

func (r *ring) release(at int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free = append(r.free, at)
}

// place writes the marks around an answer of n bytes, and reports whether the guest reads the ring.
func (r *ring) place(at int, epoch uint64, n int) bool {
	data := n - minReply
	around := mark(epoch, uniqueOf(r.mem[at+ringHead:]), data)
	copy(r.mem[at+ringMark:], around[:])
	copy(r.mem[at+ringData+sectors(data):], around[:])
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.on {
		r.sent = append(r.sent, placed{at, n})
	}
	return r.on
}

// unread returns the answers that the guest has not read and never will.
func (r *ring) unread() []placed {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.sent
	r.sent = nil
	return all
}
