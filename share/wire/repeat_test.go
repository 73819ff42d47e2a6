package wire

import (
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// nextError returns the kernel's next error for that request.
func (k kernel) nextError(t *testing.T, unique uint64) unix.Errno {
	t.Helper()
	b := k.next(t)
	if uniqueOf(b) != unique {
		t.Fatalf("answered is request %d, not %d", uniqueOf(b), unique)
	}
	return unix.Errno(-int32(codeOf(b)))
}

// TestRepeated: requests that a server has not answered and that change nothing are repeated at the next servers;
// others are lost. If the next server does not know a name's directory, the kernel does not forget the mounts there.
func TestRepeated(t *testing.T) {
	t.Parallel()
	k, p := kernel{make(chan []byte, 8), make(chan []byte, 8)}, newPort()
	ended := make(chan error, 1)
	go func() { ended <- Forward(p, k, nil) }()
	init := message(104, opInit, 2)
	handle := about(opGetAttr, 10, 5, 1)
	lookup, long := about(opLookup, 12, 5), message(keptSize+1, opLookup, 14)
	again := [][]byte{lookup, about(opGetAttr, 16, 5), about(opReadLink, 18, 5), about(opStatFS, 20, 1)}
	lost := [][]byte{handle, long, about(15, 22, 5), about(35, 24, 5)}
	h := greeted(t, p.plug(t))
	for _, request := range append([][]byte{init}, append(again, lost...)...) {
		k.asks <- request
		asked(t, h, request)
	}
	if err := h.Reply(message(80, 0, 2)); err != nil {
		t.Fatal(err)
	}
	k.answered(t, message(80, 0, 2))
	for range 2 {
		h.Close()
		h = greeted(t, p.plug(t))
		asked(t, h, init)
		for _, request := range again {
			asked(t, h, request)
		}
		got := map[uint64]unix.Errno{}
		for range lost {
			b := k.next(t)
			got[uniqueOf(b)] = unix.Errno(-int32(codeOf(b)))
		}
		for _, request := range lost {
			if errno := got[uniqueOf(request)]; errno != unix.EIO {
				t.Errorf("request %d: %v", uniqueOf(request), errno)
			}
		}
		lost = nil
	}
	for _, tt := range []struct {
		unique    uint64
		say, want unix.Errno
	}{{12, unix.ESTALE, unix.ENOMEM}, {16, unix.ESTALE, unix.ESTALE}, {18, 0, 0}, {20, unix.EACCES, unix.EACCES}} {
		if err := h.Reply(reply(nil, tt.unique, tt.say)); err != nil {
			t.Fatal(err)
		}
		if errno := k.nextError(t, tt.unique); errno != tt.want {
			t.Errorf("request %d: %v, want %v", tt.unique, errno, tt.want)
		}
	}
	// A new request is answered as the server says.
	k.asks <- about(opLookup, 30, 5)
	asked(t, h, about(opLookup, 30, 5))
	if err := h.Reply(reply(nil, 30, unix.ESTALE)); err != nil {
		t.Fatal(err)
	}
	if errno := k.nextError(t, 30); errno != unix.ESTALE {
		t.Error(errno)
	}
	h.Close()
	close(k.asks)
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("at the mount's end: %v", err)
	}
}

// TestKept: no more requests are kept than fit, and the space is reused.
func TestKept(t *testing.T) {
	t.Parallel()
	g := &guest{epoch: 7}
	for round := range uint64(3) {
		for i := range uint64(maxKept + 5) {
			g.ask(about(opLookup, 2+2*i, round), opLookup)
			if q := g.asked[i]; (q.kept != 0) != (i < maxKept) {
				t.Fatalf("request %d is kept: %v", i, q.kept)
			}
		}
		for i := range uint64(maxKept + 5) {
			if !g.wanted(reply(nil, 2+2*i, 0)) {
				t.Errorf("the request %d is lost", i)
			}
		}
	}
}
