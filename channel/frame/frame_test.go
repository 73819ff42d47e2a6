package frame

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
	sizes := []int{0, 1, 17, 4096, MaxPayload}
	for i, n := range sizes {
		all = Append(all, Data, uint64(i)+1, bytes.Repeat([]byte{byte(i)}, n))
	}
	for name, r := range map[string]io.Reader{
		"whole": bytes.NewReader(all), "bytes": iotest.OneByteReader(bytes.NewReader(all)), "halves": iotest.HalfReader(bytes.NewReader(all)),
	} {
		d := NewDecoder(r, false)
		for i, n := range sizes {
			f, err := d.Next()
			if err != nil || f.Kind != Data || f.Epoch != uint64(i)+1 || len(f.Payload) != n {
				t.Fatalf("%s: frame %d: %+v, %v", name, i, f, err)
			}
		}
		if _, err := d.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: at the end: %v", name, err)
		}
	}
}

// TestResync truncates a frame at every point: the next frame is found once as many bytes have arrived as the truncated
// frame claimed.
func TestResync(t *testing.T) {
	t.Parallel()
	old := Append(nil, Data, 7, bytes.Repeat([]byte("payload"), 20))
	next := append(make([]byte, Max), Append(nil, Hello, 8, []byte("{}"))...)
	for cut := range len(old) {
		d := NewDecoder(bytes.NewReader(append(old[:cut:cut], next...)), true)
		f, err := d.Next()
		for err == nil && f.Epoch == 0 { // the zeros may complete a frame of no epoch
			f, err = d.Next()
		}
		if err != nil || f.Kind != Hello || f.Epoch != 8 {
			t.Fatalf("cut at %d: %+v, %v", cut, f, err)
		}
	}
}

func TestStrict(t *testing.T) {
	t.Parallel()
	d := NewDecoder(bytes.NewReader([]byte("not a frame")), false)
	if _, err := d.Next(); !errors.Is(err, ErrFraming) {
		t.Errorf("error: %v", err)
	}
}

// FuzzDecoder: arbitrary bytes cause no panic, no endless loop and no oversized frame, and a whole frame after them is
// found.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte{})
	f.Add(Append(nil, Data, 1, []byte("abc")))
	f.Add(Append(nil, Hello, 1, []byte("{}"))[:20])
	f.Add(magic[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		strict := NewDecoder(bytes.NewReader(b), false)
		for {
			fr, err := strict.Next()
			if err != nil {
				break
			}
			if len(fr.Payload) > MaxPayload {
				t.Fatal("too long")
			}
		}
		tail := append(make([]byte, Max), Append(nil, Hello, 0xfeedface, []byte("{}"))...)
		loose := NewDecoder(bytes.NewReader(append(b[:len(b):len(b)], tail...)), true)
		for {
			fr, err := loose.Next()
			if err != nil {
				t.Fatalf("the frame after was lost: %v", err)
			}
			if fr.Epoch == 0xfeedface && fr.Kind == Hello {
				break
			}
		}
		seek := NewDecoder(bytes.NewReader(append(b[:len(b):len(b)], Append(nil, Answer, 0xfeedface, []byte("{}"))...)), false)
		if fr, err := seek.Seek(0xfeedface); err != nil || string(fr.Payload) != "{}" {
			t.Fatalf("the answer was lost: %+v, %v", fr, err)
		}
	})
}
