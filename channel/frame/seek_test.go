package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"
)

// TestSeek: the answer of an epoch is found behind whatever a former session left in the
// way, in one read with it or byte by byte, without a byte that comes after it.
func TestSeek(t *testing.T) {
	t.Parallel()
	const epoch = 0xfeedface
	answer := Append(nil, Answer, epoch, []byte("{}"))
	stale := Append(nil, Answer, epoch+1, []byte(`{"version":9}`))
	tooLong := bytes.Clone(answer)
	binary.BigEndian.PutUint16(tooLong[6:], MaxPayload+1)
	for name, before := range map[string][]byte{
		"nothing":                       nil,
		"noise":                         []byte("noise"),
		"the beginning of a frame":      magic[:2],
		"a frame of another kind":       Append(nil, Data, epoch, []byte("old")),
		"another epoch's answer":        stale,
		"two other answers":             append(slices.Clone(stale), stale...),
		"another answer's head":         stale[:Head],
		"another answer's half head":    stale[:Head-3],
		"an answer that was cut off":    answer[:Head+1],
		"an answer that is too long":    tooLong[:Head],
		"an answer with another tail":   append(slices.Clone(answer[:len(answer)-1]), 0),
		"more than the decoder's store": bytes.Repeat(stale, 2*Max/len(stale)),
	} {
		for kind, reader := range map[string]func(io.Reader) io.Reader{"whole": asIs, "byte by byte": iotest.OneByteReader} {
			d := NewDecoder(reader(bytes.NewReader(slices.Concat(before, answer, []byte("next")))), false)
			f, err := d.Seek(epoch)
			if err != nil || f.Kind != Answer || f.Epoch != epoch || string(f.Payload) != "{}" {
				t.Errorf("%s, %s: %+v, %v", name, kind, f, err)
			}
			if rest, _ := io.ReadAll(io.MultiReader(bytes.NewReader(d.buf[d.start:d.end]), d.r)); string(rest) != "next" {
				t.Errorf("%s, %s: %q is left", name, kind, rest)
			}
		}
	}
	if _, err := NewDecoder(bytes.NewReader(stale), false).Seek(epoch); !errors.Is(err, io.EOF) {
		t.Errorf("without an answer: %v", err)
	}
}

func asIs(r io.Reader) io.Reader { return r }

// TestFrameFitsOneWrite: the guest's port takes 32 KiB in one write.
func TestFrameFitsOneWrite(t *testing.T) {
	if got := len(Append(nil, Data, 1, make([]byte, MaxPayload))); got > 32<<10 || got < Max {
		t.Errorf("the longest frame has %d bytes, of at most %d", got, Max)
	}
}

// TestFrameBounds: the first and the last kind, and the longest payload, are frames; what
// is one beyond is none.
func TestFrameBounds(t *testing.T) {
	for _, tc := range []struct {
		name   string
		kind   Kind
		length int
		zero   byte
		frame  bool
	}{
		{name: "the first kind", kind: Hello, frame: true},
		{name: "the last kind", kind: End, frame: true},
		{name: "before the first kind", kind: Hello - 1},
		{name: "after the last kind", kind: End + 1},
		{name: "the longest payload", kind: Data, length: MaxPayload, frame: true},
		{name: "a longer payload", kind: Data, length: MaxPayload + 1},
		{name: "a byte that has no meaning", kind: Data, zero: 1},
	} {
		b := Append(nil, tc.kind, 1, make([]byte, tc.length))
		b[5] = tc.zero
		f, size, err := parse(b)
		if tc.frame && (err != nil || size != len(b) || len(f.Payload) != tc.length) || !tc.frame && !errors.Is(err, ErrFraming) {
			t.Errorf("%s: size %d of %d, %v", tc.name, size, len(b), err)
		}
		for _, n := range []int{0, 1, Head - 1, Head, len(b) - 1} {
			if _, size, err := parse(b[:n]); size != 0 || tc.frame && err != nil {
				t.Errorf("%s, of which %d bytes came: size %d, %v", tc.name, n, size, err)
			}
		}
	}
}

// TestGuardSeesAllThatComesAtOnce: data hides nothing that follows it.
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

// TestFramer: a header that data follows travels with its data, every other one at once,
// and what is too long for one frame in as few as can be.
func TestFramer(t *testing.T) {
	head := func(typ byte, length uint32) string {
		return string(binary.BigEndian.AppendUint32([]byte{0, typ, 0, 0, 0, 0, 0, 1}, length))
	}
	long := string(bytes.Repeat([]byte("d"), MaxPayload))
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
		{"what is longer than a frame", []string{head(muxData, uint32(len(long))), long}, []string{
			head(muxData, uint32(len(long))) + long[muxHead:], long[:muxHead],
		}},
	} {
		var got []string
		f := &framer{epoch: 5, write: func(b []byte) error {
			frame, size, err := parse(b)
			if err != nil || size != len(b) || frame.kind != Data || frame.epoch != 5 {
				t.Errorf("%s: %+v, size %d, %v", tc.name, frame, size, err)
			}
			got = append(got, string(frame.payload))
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
