package wire_test

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestClaims: messages with false lengths, and answers that would be too long, are refused without using memory.
func TestClaims(t *testing.T) {
	dir := small(t)
	const huge = ^uint32(0)
	wrong := message(getattr, 2, uint64(0), uint64(0))
	binary.NativeEndian.PutUint32(wrong, 41)
	extended := message(getattr, 2, uint64(0), uint64(0))
	binary.NativeEndian.PutUint16(extended[36:], 1)
	hack := message(getattr, ^uint64(0), uint64(0), uint64(0))
	for _, c := range []struct {
		what string
		m    []byte
		want unix.Errno
	}{
		{"before the greeting", message(statfs, 1), unix.EIO},
		{"the greeting", hello(), 0},
		{"a second greeting", hello(), unix.EIO},
		{"the root", message(lookup, 1, "data"), 0},
		{"another length", wrong, unix.EINVAL},
		{"an extension", extended, unix.EINVAL},
		{"go-fuse's own node", hack, unix.ESTALE},
		{"a request cut short", message(setattr, 2, uint64(0)), unix.EINVAL},
		{"no name", message(lookup, 2), unix.EINVAL},
		{"one name of two", message(rename, 2, uint64(2), "name"), unix.EIO},
		{"one name and an end", message(rename, 2, uint64(2), "name", []byte("other")), unix.EIO},
		{"a read of 4 GiB", message(read, 2, uint64(1), uint64(0), huge, uint32(0), uint64(0), uint64(0)), unix.EINVAL},
		{"a listing of 4 GiB", message(readdir, 2, uint64(1), uint64(0), huge, uint32(0), uint64(0), uint64(0)), unix.EINVAL},
		{"an attribute of 4 GiB", message(getxattr, 2, huge, uint32(0), "user.a"), unix.EINVAL},
		{"attributes of 4 GiB", message(listxattr, 2, huge, uint32(0)), unix.EINVAL},
		{"an attribute that is not there", message(setxattr, 2, huge, uint32(0), "user.a", []byte("v")), unix.EINVAL},
		{"an ioctl", message(39, 2, make([]byte, 32)), unix.ENOSYS},
		{"poll", message(40, 2, make([]byte, 24)), unix.ENOSYS},
		{"no request", message(0, 2), unix.ENOSYS},
		{"a request of tomorrow", message(4096, 2), unix.ENOSYS},
	} {
		if c.what == "before the greeting" {
			g := newGuest(t, dir)
			if got, _ := g.send(c.m); got != c.want {
				t.Errorf("%s: %v", c.what, got)
			}
			g.fs.Close()
			continue
		}
		got := greeted(t, dir, c.m, c.what == "the greeting")
		if got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// greeted returns the error for a message to a file system, after the greeting unless it is the first.
func greeted(t *testing.T, dir string, m []byte, first bool) unix.Errno {
	t.Helper()
	g := newGuest(t, dir)
	defer g.fs.Close()
	if !first {
		g.send(hello())
		g.send(message(lookup, 1, "data"))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	errno, _ := g.send(m)
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes for a message of %d", grown, len(m))
	}
	return errno
}

// TestShort: invalid messages are dropped, and some requests have no answer.
func TestShort(t *testing.T) {
	g := newGuest(t, small(t))
	defer g.fs.Close()
	g.send(hello())
	reply := make([]byte, 100)
	for _, m := range [][]byte{nil, {1}, make([]byte, 39), message(forget, 1, uint64(1)), message(forget, 1), message(batchForget, 1)} {
		if n := g.wire.Answer(m, reply); n != 0 {
			t.Errorf("%x is answered by %x", m, reply[:n])
		}
	}
	n := g.wire.Answer(message(statfs, 1), reply[:20])
	if n != 16 || unix.Errno(-int32(binary.NativeEndian.Uint32(reply[4:]))) != unix.EINVAL {
		t.Errorf("no room for the answer: %x", reply[:n])
	}
}

// TestScript keeps the form of the fuzzer's corpus.
func TestScript(t *testing.T) {
	want := everything()[1:4]
	if diff := cmp.Diff(want, messages(script(want...))); diff != "" {
		t.Error(diff)
	}
}
