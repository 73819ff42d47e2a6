package channel

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// TestGuardHeaders: of what a guest may say to the multiplexer each kind passes up to
// its bound, and nothing else does.
func TestGuardHeaders(t *testing.T) {
	for _, tc := range []struct {
		name         string
		version, typ byte
		flags        uint16
		length       uint32
		allowed      bool
	}{
		{name: "data", typ: muxData, length: 1, allowed: true},
		{name: "a whole window of data", typ: muxData, length: window, allowed: true},
		{name: "more than a window of data", typ: muxData, length: window + 1},
		{name: "a window update", typ: muxWindow, length: window + 1, allowed: true},
		{name: "the end of a stream", typ: muxData, flags: 4, allowed: true},
		{name: "the end of the session", typ: muxAway, allowed: true},
		{name: "a kind beyond the last", typ: muxAway + 1},
		{name: "another version", version: 1, typ: muxData},
		{name: "a ping", typ: muxPing},
		{name: "an answer to a ping", typ: muxPing, flags: 2},
		{name: "a new stream", typ: muxData, flags: muxSYN},
		{name: "a new stream by a window update", typ: muxWindow, flags: muxSYN},
	} {
		head := make([]byte, muxHead)
		head[0], head[1] = tc.version, tc.typ
		binary.BigEndian.PutUint16(head[2:], tc.flags)
		binary.BigEndian.PutUint32(head[8:], tc.length)
		var g guard
		err := g.check(head)
		if tc.allowed && err != nil || !tc.allowed && !errors.Is(err, ErrGuest) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if want := int(tc.length); tc.allowed && tc.typ == muxData && g.skip != want || tc.typ != muxData && g.skip != 0 {
			t.Errorf("%s: %d bytes are data", tc.name, g.skip)
		}
	}
}

// TestHelloBounds: a hello of the largest size is told and understood, a larger one is
// neither.
func TestHelloBounds(t *testing.T) {
	empty, err := Hello{Build: "x"}.encode()
	if err != nil {
		t.Fatal(err)
	}
	most := strings.Repeat("x", maxHello-len(empty)+1)
	b, err := Hello{Build: most}.encode()
	if err != nil || len(b) != maxHello {
		t.Errorf("%d bytes: %v", len(b), err)
	}
	if h, err := decodeHello(b); err != nil || h.Build != most {
		t.Errorf("a hello of %d bytes: %v", len(b), err)
	}
	if _, err := (Hello{Build: most + "x"}).encode(); err == nil {
		t.Error("a hello that is too large is told")
	}
	if _, err := decodeHello(append(b, ' ')); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a hello that is too large: %v", err)
	}
}

// FuzzGuard splits bytes in two at will: the verdict is the same.
func FuzzGuard(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 'x', 0, 2, 0, 0}, 5)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		var whole, parts guard
		at = max(0, min(at, len(b)))
		want := whole.check(b)
		got := parts.check(b[:at])
		if got == nil {
			got = parts.check(b[at:])
		}
		if (want == nil) != (got == nil) {
			t.Fatalf("%v, in parts %v", want, got)
		}
	})
}
