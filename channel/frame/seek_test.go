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

// TestSeek finds an epoch's answer behind any remains of an earlier session, in one read or byte by byte, and reads no
// byte beyond it.
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

// TestFrameFitsOneWrite: the guest's port accepts 32 KiB in one write.
func TestFrameFitsOneWrite(t *testing.T) {
	if got := len(Append(nil, Data, 1, make([]byte, MaxPayload))); got > 32<<10 || got < Max {
		t.Errorf("the longest frame has %d bytes, of at most %d", got, Max)
	}
}

// TestFrameBounds: the first and the last kind, and the longest payload, are valid; values beyond are not.
func TestFrameBounds(t *testing.T) {
	for _, tc := range []struct {
		name   string
		kind   Kind
		length int
		zero   byte
		frame  bool
	}{
		{name: "the first kind", kind: Hello, frame: true},
		{name: "the last kind", kind: Note, frame: true},
		{name: "before the first kind", kind: Hello - 1},
		{name: "after the last kind", kind: Note + 1},
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
