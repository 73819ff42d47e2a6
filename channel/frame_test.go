package channel

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func TestFrames(t *testing.T) {
	t.Parallel()
	var all []byte
	sizes := []int{0, 1, 17, 4096, maxPayload}
	for i, n := range sizes {
		all = appendFrame(all, kindData, uint64(i)+1, bytes.Repeat([]byte{byte(i)}, n))
	}
	for name, r := range map[string]io.Reader{
		"whole": bytes.NewReader(all), "bytes": iotest.OneByteReader(bytes.NewReader(all)), "halves": iotest.HalfReader(bytes.NewReader(all)),
	} {
		d := newDecoder(r, false)
		for i, n := range sizes {
			f, err := d.next()
			if err != nil || f.kind != kindData || f.epoch != uint64(i)+1 || len(f.payload) != n {
				t.Fatalf("%s: frame %d: %+v, %v", name, i, f, err)
			}
		}
		if _, err := d.next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: at the end: %v", name, err)
		}
	}
}

// TestResync cuts a frame at every point; the frame after is found, once as
// many bytes have come as the cut frame claimed.
func TestResync(t *testing.T) {
	t.Parallel()
	old := appendFrame(nil, kindData, 7, bytes.Repeat([]byte("payload"), 20))
	next := append(make([]byte, maxFrame), appendFrame(nil, kindHello, 8, []byte("{}"))...)
	for cut := range len(old) {
		d := newDecoder(bytes.NewReader(append(old[:cut:cut], next...)), true)
		f, err := d.next()
		for err == nil && f.epoch == 0 { // the zeros may complete a frame that is nobody's
			f, err = d.next()
		}
		if err != nil || f.kind != kindHello || f.epoch != 8 {
			t.Fatalf("cut at %d: %+v, %v", cut, f, err)
		}
	}
}

func TestStrict(t *testing.T) {
	t.Parallel()
	d := newDecoder(bytes.NewReader([]byte("not a frame")), false)
	if _, err := d.next(); !errors.Is(err, errFraming) {
		t.Errorf("error: %v", err)
	}
}

// FuzzDecoder wants no panic, no endless loop, and no frame that is longer
// than allowed, of any bytes; and a whole frame after them to be found.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendFrame(nil, kindData, 1, []byte("abc")))
	f.Add(appendFrame(nil, kindHello, 1, []byte("{}"))[:20])
	f.Add(magic[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		strict := newDecoder(bytes.NewReader(b), false)
		for {
			fr, err := strict.next()
			if err != nil {
				break
			}
			if len(fr.payload) > maxPayload {
				t.Fatal("too long")
			}
		}
		tail := append(make([]byte, maxFrame), appendFrame(nil, kindHello, 0xfeedface, []byte("{}"))...)
		loose := newDecoder(bytes.NewReader(append(b[:len(b):len(b)], tail...)), true)
		for {
			fr, err := loose.next()
			if err != nil {
				t.Fatalf("the frame after was lost: %v", err)
			}
			if fr.epoch == 0xfeedface && fr.kind == kindHello {
				break
			}
		}
		seek := newDecoder(bytes.NewReader(append(b[:len(b):len(b)], appendFrame(nil, kindAnswer, 0xfeedface, []byte("{}"))...)), false)
		if fr, err := seek.seek(0xfeedface); err != nil || string(fr.payload) != "{}" {
			t.Fatalf("the answer was lost: %+v, %v", fr, err)
		}
	})
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
