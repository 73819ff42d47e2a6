package channel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/channel/frame"
)

// TestGuardHeaders: the guard passes each allowed kind up to its bound, and nothing else.
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

// TestHelloBounds: a hello of the maximum size is sent and accepted, a larger one is refused on both sides.
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
		t.Error("a hello that is too large was sent")
	}
	if _, err := decodeHello(append(b, ' ')); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a hello that is too large: %v", err)
	}
}

// FuzzGuard splits bytes in two: the verdict is the same.
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

// TestGuardSeesAllThatComesAtOnce: data does not hide the headers after it.
func TestGuardSeesAllThatComesAtOnce(t *testing.T) {
	head := func(typ byte, length uint32) []byte {
		return binary.BigEndian.AppendUint32([]byte{0, typ, 0, 0, 0, 0, 0, 1}, length)
	}
	for name, tc := range map[string]struct {
		bytes   []byte
		allowed bool
	}{
		"data and data":        {slices.Concat(head(muxData, 3), []byte("abc"), head(muxData, 1), []byte("x")), true},
		"a ping within data":   {slices.Concat(head(muxData, muxHead), head(muxPing, 0), head(muxWindow, 9)), true},
		"a ping behind data":   {slices.Concat(head(muxData, 3), []byte("abc"), head(muxPing, 0)), false},
		"a ping behind window": {slices.Concat(head(muxWindow, 3), head(muxPing, 0)), false},
	} {
		for _, step := range []int{len(tc.bytes), 1, 5} {
			var g guard
			var err error
			for part := range slices.Chunk(tc.bytes, step) {
				err = errors.Join(err, g.check(part))
			}
			if tc.allowed != (err == nil) || !tc.allowed && !errors.Is(err, ErrGuest) {
				t.Errorf("%s, %d bytes at once: %v", name, step, err)
			}
		}
	}
}

// TestFramer: a header is sent with its data, a header that only opens a stream with the next write, and every other
// one at once. Long data uses as few frames as possible.
func TestFramer(t *testing.T) {
	flagged := func(typ, flags byte, length uint32) string {
		return string(binary.BigEndian.AppendUint32([]byte{0, typ, 0, flags, 0, 0, 0, 1}, length))
	}
	head := func(typ byte, length uint32) string { return flagged(typ, 0, length) }
	const muxFIN = 4
	long := string(bytes.Repeat([]byte("d"), frame.MaxPayload))
	for _, tc := range []struct {
		name         string
		writes, want []string // payloads
	}{
		{"a header and its data", []string{head(muxData, 3), "abc"}, []string{head(muxData, 3) + "abc"}},
		{"twice", []string{head(muxData, 1), "a", head(muxData, 1), "b"}, []string{head(muxData, 1) + "a", head(muxData, 1) + "b"}},
		{"data that looks like a header", []string{head(muxData, muxHead), head(muxData, 5)}, []string{
			head(muxData, muxHead) + head(muxData, 5),
		}},
		{"a header without data", []string{head(muxData, 0)}, []string{head(muxData, 0)}},
		{"a window update", []string{head(muxWindow, 7)}, []string{head(muxWindow, 7)}},
		{"a stream's begin and its call", []string{flagged(muxWindow, muxSYN, 0), head(muxData, 3), "abc"}, []string{
			flagged(muxWindow, muxSYN, 0) + head(muxData, 3) + "abc",
		}},
		{"two begins", []string{flagged(muxWindow, muxACK, 0), flagged(muxWindow, muxACK, 0), head(muxWindow, 7)}, []string{
			flagged(muxWindow, muxACK, 0) + flagged(muxWindow, muxACK, 0) + head(muxWindow, 7),
		}},
		{"a begin and room", []string{flagged(muxWindow, muxSYN, 7)}, []string{flagged(muxWindow, muxSYN, 7)}},
		{"a begin and the end", []string{flagged(muxWindow, muxSYN, 0), flagged(muxWindow, muxFIN, 0)}, []string{
			flagged(muxWindow, muxSYN, 0) + flagged(muxWindow, muxFIN, 0),
		}},
		{"what is longer than a frame", []string{head(muxData, uint32(len(long))), long}, []string{
			head(muxData, uint32(len(long))) + long[muxHead:], long[:muxHead],
		}},
	} {
		var got []string
		f := &framer{epoch: 5, write: func(b []byte) error {
			sent, err := frame.NewDecoder(bytes.NewReader(b), false).Next()
			if err != nil || sent.Kind != frame.Data || sent.Epoch != 5 {
				t.Errorf("%s: %+v, %v", tc.name, sent, err)
			}
			got = append(got, string(sent.Payload))
			return nil
		}}
		for _, w := range tc.writes {
			if n, err := f.Write([]byte(w)); n != len(w) || err != nil {
				t.Errorf("%s: %d of %d, %v", tc.name, n, len(w), err)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %d frames: %.80q", tc.name, len(got), got)
		}
	}
	broken := &framer{write: func([]byte) error { return io.ErrClosedPipe }}
	if n, err := broken.Write([]byte("x")); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a write that fails: %d, %v", n, err)
	}
}
