package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/bulkhead-project/bulkhead/channel/frame"
)

// ring is the server's side of the ring: a session's own.
type ring struct {
	mem  []byte
	lost chan struct{} // has room for one: the guest does not read it any more

	mu   sync.Mutex // of what follows; nobody waits for anything while it is held
	on   bool       // the guest reads it
	over bool       // and will not again in this session
	free []int      // rooms
	sent []placed   // answers that the guest may not have read, in their order
	read uint16     // how many it has read
}

// placed is an answer in the ring: where its room begins, and its length with its head.
type placed struct{ at, n int }

// Room is room for an answer: of the ring, or memory of its own.
type Room struct {
	Buf []byte
	at  int // where it begins in the ring; 0 is not there
}

// Offer has the guest read large answers from mem, which is RingSize long and all zero or a former
// session's. It is called before the first Room, once.
func (h *Host) Offer(mem []byte) error {
	if len(mem) != RingSize {
		return fmt.Errorf("the ring has %d bytes instead of %d", len(mem), RingSize)
	}
	r := &ring{mem: mem, lost: make(chan struct{}, 1)}
	for i := range ringRooms {
		r.free = append(r.free, page+(ringRooms-1-i)*ringRoom) // the first is taken first
	}
	first := mark(h.epoch, 0, 0)
	copy(mem, first[:])
	h.ring = r
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.note(noteOffer)
}

// Room is for an answer of at most size bytes, which Send sends or Drop gives back.
func (h *Host) Room(size int) Room {
	if h.ring != nil && size >= RingLeast && size <= MaxMessage {
		if at := h.ring.take(); at != 0 {
			end := at + ringHead + min(size, minReply+MaxData)
			return Room{Buf: h.ring.mem[at+ringHead : end : end], at: at}
		}
	}
	return Room{Buf: make([]byte, size)}
}

// Drop gives back a room that nothing is sent from.
func (h *Host) Drop(r Room) {
	if r.at != 0 {
		h.ring.give(r.at)
	}
}

// Send sends the first n bytes of a room, which is the caller's no more.
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

// Mend sends anew what the guest could not read, once, or returns when done is closed.
func (h *Host) Mend(done <-chan struct{}) error {
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

// heard takes what a guest says of the ring, which may be anything.
func (r *ring) heard(note []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over || len(note) == 0:
	case note[0] == noteUse:
		r.on = true
	case note[0] == noteLost && len(note) == 3:
		r.count(binary.NativeEndian.Uint16(note[1:]))
		r.on, r.over = false, true
		r.lost <- struct{}{}
	}
}

// counted takes how many answers a request says were read, and clears that in it.
func (r *ring) counted(request []byte) {
	n := binary.NativeEndian.Uint16(request[readCount:])
	binary.NativeEndian.PutUint16(request[readCount:], 0)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count(n)
}

// count frees the rooms of what was read. A guest that says more than it was sent says nothing.
func (r *ring) count(n uint16) {
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

// take is a free room, or 0.
func (r *ring) take() (at int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := len(r.free) - 1
	if !r.on || last < 0 {
		return 0
	}
	at, r.free = r.free[last], r.free[:last]
	return at
}

func (r *ring) give(at int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free = append(r.free, at)
}

// place puts the marks around an answer of n bytes, and tells whether the guest may read it.
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

// unread are the answers that the guest has not read and never will.
func (r *ring) unread() []placed {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.sent
	r.sent = nil
	return all
}
