package wire

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// about returns a request with that code for a file. The rest of its body is zero.
func about(code uint32, unique, node uint64, body ...byte) []byte {
	b := message(max(minRequest+len(body), 96), code, unique)
	binary.NativeEndian.PutUint64(b[16:], node)
	clear(b[minRequest:])
	copy(b[minRequest:], body)
	return b
}

// lock is a request for a lock of a file.
func lock(code uint32, unique, node uint64, flags uint32) []byte {
	b := about(code, unique, node)
	binary.NativeEndian.PutUint32(b[lockFlags:], flags)
	return b
}

// xattr asks for an attribute.
func xattr(unique uint64, name string) []byte {
	b := append(about(opGetXattr, unique, 5)[:xattrName], name...)
	b = append(b, 0)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

// TestLocal: the forwarder's own answers are the same as the host's, and requests that the host needs are passed on.
func TestLocal(t *testing.T) {
	t.Parallel()
	k, p := kernel{make(chan []byte, 8), make(chan []byte, 8)}, newPort()
	ended := make(chan error, 1)
	go func() { ended <- Forward(p, k, nil) }()
	h := greeted(t, p.plug(t))
	unique := uint64(2)
	here := func(what string, request []byte, want unix.Errno) {
		t.Helper()
		k.asks <- request
		if got := k.next(t); uniqueOf(got) != uniqueOf(request) || unix.Errno(-int32(codeOf(got))) != want || len(got) != minReply {
			t.Errorf("%s: % x, want %v", what, got, want)
		}
	}
	there := func(request []byte) {
		t.Helper()
		k.asks <- request
		asked(t, h, request)
		if err := h.Reply(message(minReply, 0, uniqueOf(request))); err != nil {
			t.Fatal(err)
		}
		k.answered(t, message(minReply, 0, uniqueOf(request)))
	}
	next := func() uint64 { unique += 2; return unique }
	here("a close", about(opFlush, next(), 5), 0)
	there(lock(opSetLock, next(), 6, flock))
	here("a close of a file with flock", about(opFlush, next(), 6), 0)
	there(lock(opSetLock, next(), 6, 0))
	there(about(opFlush, next(), 6))
	there(lock(opSetLockWait, next(), 4, 0))
	there(about(opFlush, next(), 4))
	here("a close of another", about(opFlush, next(), 5), 0)
	here("a file's capabilities", xattr(next(), "security.capability"), unix.ENODATA)
	there(xattr(next(), "security.capability2"))
	there(xattr(next(), "user.a"))
	for _, code := range []uint32{opRelease, opReleaseDir} {
		request := about(code, next(), 6)
		here("an end", request, 0)
		asked(t, h, about(code, 0, 6))
		if !Silent(about(code, 0, 6)) || Silent(request) {
			t.Error("a request that is answered gets a reply, or one that is not gets none")
		}
	}
	h.Close()
	h = greeted(t, p.plug(t))
	here("a close of a file with locks at a former server", about(opFlush, next(), 6), 0)
	h.Close()
	close(k.asks)
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("at the mount's end: %v", err)
	}
}

// TestManyLocks: beyond the bound of known files, each close is passed on to the host.
func TestManyLocks(t *testing.T) {
	t.Parallel()
	var g guest
	for i := range uint64(maxLocked) {
		if _, ok := g.local(about(opFlush, 2, i+1)); !ok {
			t.Fatalf("file %d is locked", i)
		}
		g.local(lock(opSetLock, 2, i+1, 0))
	}
	g.local(lock(opSetLock, 2, 1<<40, 0))
	for _, node := range []uint64{1, maxLocked, 1 << 40, 1 << 41} {
		if _, ok := g.local(about(opFlush, 2, node)); ok {
			t.Errorf("the close of file %d is not passed on", node)
		}
	}
	if len(g.locked) != maxLocked {
		t.Errorf("%d files are remembered", len(g.locked))
	}
}
