package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// disk is the slot of the ring's disk, which another disk may take.
type disk struct {
	mu    sync.Mutex
	mem   []byte
	reads int
}

func (d *disk) ReadAt(b []byte, at int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads++
	if at%sector != 0 || len(b)%sector != 0 {
		return 0, unix.EINVAL
	}
	if n := copy(b, d.mem[min(at, int64(len(d.mem))):]); n < len(b) {
		return n, io.ErrUnexpectedEOF
	}
	return len(b), nil
}

func (d *disk) swap(mem []byte) (reads int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mem = mem
	reads, d.reads = d.reads, 0
	return reads
}

// ringed is a guest with the ring of a server as its disk, and a session with that server.
type ringed struct {
	t      *testing.T
	k      kernel
	p      *port
	disk   disk
	mem    []byte
	host   *Host
	unique uint64
	ended  chan error
}

func newRinged(t *testing.T) *ringed {
	k := kernel{make(chan []byte, 64), make(chan []byte, 64)}
	g := &ringed{t: t, k: k, p: newPort(), mem: make([]byte, RingSize), ended: make(chan error, 1)}
	g.disk.mem = g.mem
	go func() { g.ended <- Forward(g.p, g.k, &g.disk) }()
	g.serve(g.mem)
	t.Cleanup(func() {
		close(g.k.asks)
		if err := <-g.ended; !errors.Is(err, io.EOF) {
			t.Errorf("at the mount's end: %v", err)
		}
	})
	return g
}

// serve starts a session of a server with the ring mem, and waits for the guest's message on the ring.
func (g *ringed) serve(mem []byte) {
	g.t.Helper()
	if g.host != nil {
		g.host.Close()
	}
	g.host = greeted(g.t, g.p.plug(g.t))
	if err := g.host.Offer(mem); err != nil {
		g.t.Fatal(err)
	}
	for range 2 { // the message arrives before the second at the latest
		g.ask(minRequest)
		g.answer(minReply)
	}
}

// ask sends a request of the kernel to the server.
func (g *ringed) ask(size int) {
	g.t.Helper()
	g.unique += 2
	request := message(size, 15, g.unique)
	binary.NativeEndian.PutUint16(request[readCount:], 0)
	g.k.asks <- request
	asked(g.t, g.host, request)
}

// answer answers the last request with so many bytes, and reports whether they used the ring.
func (g *ringed) answer(size int) (byRing bool) {
	g.t.Helper()
	byRing = g.send(g.unique, size)
	g.k.answered(g.t, message(size, 0, g.unique))
	return byRing
}

func (g *ringed) send(unique uint64, size int) (byRing bool) {
	g.t.Helper()
	room := g.host.Room(size)
	copy(room.Buf, message(size, 0, unique))
	if err := g.host.Send(room, size); err != nil {
		g.t.Fatal(err)
	}
	return room.at != 0 && size >= RingLeast
}

// TestRing: answers of every size arrive unchanged, the long ones through the ring, more often than it has rooms, and
// again after each server's end.
func TestRing(t *testing.T) {
	t.Parallel()
	g := newRinged(t)
	const some = 128<<10 + minReply
	sizes := []int{minReply, 4096, RingLeast - 1, RingLeast, RingLeast + 1, some, MaxData + minReply - 7, MaxData + minReply}
	for server := range 3 {
		for round := range 2 * ringRooms {
			for _, size := range sizes {
				g.ask(64)
				if byRing := g.answer(size); byRing != (size >= RingLeast) {
					t.Fatalf("server %d, round %d: %d bytes by the ring: %v", server, round, size, byRing)
				}
			}
		}
		g.serve(g.mem)
	}
}

// TestRingFull: without a free room an answer uses the port. The order in which answers are read makes no difference.
func TestRingFull(t *testing.T) {
	t.Parallel()
	g := newRinged(t)
	const size = MaxData + minReply
	first := g.unique + 2
	for range ringRooms + 2 {
		g.ask(64)
	}
	for i := range ringRooms + 2 {
		unique := first + 2*uint64(ringRooms+1-i)
		if byRing := g.send(unique, size); byRing != (i < ringRooms) {
			t.Errorf("answer %d by the ring: %v", i, byRing)
		}
		g.k.answered(t, message(size, 0, unique))
	}
	g.ask(64)
	if !g.answer(size) {
		t.Error("rooms that were read are not free")
	}
}

// TestRingLost: if another disk takes the ring's slot, unread answers are sent through the port, and so are later ones.
// Nothing of the other disk is taken for an answer. The next server's ring is used again if it is the disk.
func TestRingLost(t *testing.T) {
	t.Parallel()
	const size = 3*RingLeast + 5
	for name, other := range map[string]func(g *ringed) []byte{
		"an empty one":     func(*ringed) []byte { return make([]byte, RingSize) },
		"a short one":      func(*ringed) []byte { return make([]byte, page) },
		"another server's": func(g *ringed) []byte { b := bytes.Clone(g.mem); b[8]++; return b },
		"one without data": func(g *ringed) []byte {
			return append(bytes.Clone(g.mem[:page+page]), make([]byte, RingSize-2*page)...)
		},
		"an earlier answer": func(g *ringed) []byte { return bytes.Clone(g.mem) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRinged(t)
			g.ask(64)
			if !g.answer(size) {
				t.Fatal("the ring is not used")
			}
			mended, done := make(chan error, 1), make(chan struct{})
			go func() { mended <- g.host.Resend(done) }()
			served := make(chan error, 1)
			for range 3 {
				g.ask(64)
			}
			g.disk.swap(other(g))
			for i := range uint64(3) {
				g.send(g.unique-2*(2-i), size)
			}
			go func() { // the guest's word on it
				_, err := g.host.Next()
				served <- err
			}()
			got := map[uint64]bool{}
			for range 3 {
				b := g.k.next(t)
				if !bytes.Equal(b, message(size, 0, uniqueOf(b))) {
					t.Errorf("answered are %d bytes % .24x", len(b), b)
				}
				got[uniqueOf(b)] = true
			}
			if len(got) != 3 {
				t.Errorf("answered are %v", got)
			}
			if err := <-mended; err != nil {
				t.Error(err)
			}
			g.unique += 2
			g.k.asks <- message(64, 15, g.unique)
			if err := <-served; err != nil {
				t.Fatal(err)
			}
			if g.answer(size) {
				t.Error("the ring is used once more")
			}
			g.disk.swap(g.mem)
			g.serve(g.mem)
			g.ask(64)
			if !g.answer(size) {
				t.Error("the next server's ring is not used")
			}
		})
	}
}

// TestRingOfAnother: a guest without a disk, or with one that is not the server's memory, gets its answers through the
// port.
func TestRingOfAnother(t *testing.T) {
	t.Parallel()
	g := newRinged(t)
	g.serve(make([]byte, RingSize))
	g.ask(64)
	if g.answer(MaxData) {
		t.Error("a ring is used that is not the guest's disk")
	}
	if reads := g.disk.swap(nil); reads == 0 {
		t.Error("the guest has not looked")
	}
	g.serve(g.mem)
	g.ask(64)
	if g.answer(MaxData) {
		t.Error("a ring is used that the guest does not have")
	}
}

// TestHostileCounts: a guest that reports more answers than it got frees nothing. No room is ever free twice.
func TestHostileCounts(t *testing.T) {
	t.Parallel()
	whole := func(r *ring) {
		t.Helper()
		seen := map[int]bool{}
		for _, at := range r.free {
			seen[at] = true
		}
		for _, p := range r.sent {
			seen[p.at] = true
		}
		if len(seen) != len(r.free)+len(r.sent) || len(seen) > ringRooms {
			t.Fatalf("free are %v, sent %v", r.free, r.sent)
		}
	}
	h := &Host{conn: discard{}, epoch: 7}
	if err := h.Offer(make([]byte, RingSize)); err != nil {
		t.Fatal(err)
	}
	h.ring.onNote([]byte{noteUse})
	for n := range 1 << 16 {
		if room := h.Room(MaxData); room.at != 0 {
			binary.NativeEndian.PutUint32(room.Buf, RingLeast)
			if err := h.Send(room, RingLeast); err != nil {
				t.Fatal(err)
			}
		}
		before := len(h.ring.free)
		request := message(64, 15, 2)
		binary.NativeEndian.PutUint16(request[readCount:], uint16(n*7919))
		h.ring.updateReads(request)
		if binary.NativeEndian.Uint16(request[readCount:]) != 0 {
			t.Fatal("FUSE got it")
		}
		if got := len(h.ring.free) - before; got < 0 || got > ringRooms {
			t.Fatalf("%d rooms are freed", got)
		}
		whole(h.ring)
	}
	for _, note := range [][]byte{
		nil, {noteLost}, {0}, {noteOffer}, {notePlace}, {noteLost, 0, 0, 0}, {noteLost, 255, 255}, {noteUse}, {noteLost, 1, 0},
	} {
		h.ring.onNote(note)
		whole(h.ring)
	}
	if room := h.Room(MaxData); room.at != 0 {
		t.Error("a ring that was lost is used again")
	}
}

// FuzzNote: no note makes the forwarder panic, read beyond the ring, or return an answer with wrong marks.
func FuzzNote(f *testing.F) {
	mem := make([]byte, RingSize)
	h := &Host{conn: discard{}, epoch: 7}
	if err := h.Offer(mem); err != nil {
		f.Fatal(err)
	}
	h.ring.onNote([]byte{noteUse})
	room := h.Room(MaxMessage)
	copy(room.Buf, message(RingLeast, 0, 22))
	if err := h.Send(room, RingLeast); err != nil {
		f.Fatal(err)
	}
	note := append([]byte{notePlace}, binary.NativeEndian.AppendUint32(nil, uint32(room.at))...)
	f.Add(append(note, room.Buf[:minReply]...))
	f.Add([]byte{noteOffer})
	f.Fuzz(func(t *testing.T, note []byte) {
		k := kernel{nil, make(chan []byte, 2)}
		g := &guest{port: sink{}, fuse: k, epoch: 7, asked: []question{{unique: 22}}, ring: reader{disk: &disk{mem: mem}, on: true}}
		if err := g.noted(note); err != nil {
			t.Fatal(err)
		}
		if len(k.answers) > 0 {
			if got := <-k.answers; !bytes.Equal(got, message(RingLeast, 0, 22)) {
				t.Fatalf("answered are %d bytes % .24x", len(got), got)
			}
		}
	})
}
