// Package frame is how bytes travel over a virtio-serial port: in frames that carry their
// session's epoch, so that each side finds the next whole frame whatever a process that was
// killed has left half sent. It allocates a fixed amount, and believes no length.
package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A frame is
//
//	magic 4 | kind 1 | zero 1 | length 2 | epoch 8 | payload | epoch 8
//
// with numbers in big-endian order. The epoch after the payload tells a whole
// frame from one whose end was cut off and whose length swallowed what came
// next.
const (
	Head = 16 // bytes before the payload
	Tail = 8  // and after it
	// MaxPayload keeps a frame within one write to the guest's port, which
	// takes 32 KiB at a time.
	MaxPayload = 32<<10 - Head - Tail
	Max        = Head + MaxPayload + Tail
)

var magic = [4]byte{0xB5, 'k', 'h', 0xD1}

// Kind is what a frame is for.
type Kind byte

// The kinds.
const (
	Hello  Kind = 1 // host to guest: begins the epoch; payload tells of who speaks
	Answer Kind = 2 // guest to host: the epoch has begun; payload tells of who answers
	Data   Kind = 3 // both ways: bytes of the session
	Ready  Kind = 4 // guest to host: I am here; no payload, epoch 0
	End    Kind = 5 // both ways: the session of this epoch is over; no payload
	Note   Kind = 6 // both ways, where both sides know of it: what is beside the session's bytes
)

// ErrFraming says that bytes are not a sequence of frames.
var ErrFraming = errors.New("not a frame")

// Frame is one frame.
type Frame struct {
	Kind    Kind
	Epoch   uint64
	Payload []byte // valid until the next frame is read
}

// Append appends the encoding of a frame; payload is at most MaxPayload.
func Append(b []byte, k Kind, epoch uint64, payload ...[]byte) []byte {
	n := 0
	for _, p := range payload {
		n += len(p)
	}
	b = append(b, magic[:]...)
	b = append(b, byte(k), 0)
	b = binary.BigEndian.AppendUint16(b, uint16(n))
	b = binary.BigEndian.AppendUint64(b, epoch)
	for _, p := range payload {
		b = append(b, p...)
	}
	return binary.BigEndian.AppendUint64(b, epoch)
}

// Enclose makes a frame of b, whose payload lies between its first Head and its last Tail
// bytes already, and is at most MaxPayload.
func Enclose(b []byte, k Kind, epoch uint64) {
	Marks(b[:Head], b[len(b)-Tail:], k, epoch, len(b)-Head-Tail)
}

// Marks writes what stands before and after a payload of length bytes, at most MaxPayload.
func Marks(head, tail []byte, k Kind, epoch uint64, length int) {
	copy(head, magic[:])
	head[4], head[5] = byte(k), 0
	binary.BigEndian.PutUint16(head[6:], uint16(length))
	binary.BigEndian.PutUint64(head[8:], epoch)
	binary.BigEndian.PutUint64(tail, epoch)
}

// Decoder reads frames. It holds at most one frame's bytes.
type Decoder struct {
	r      io.Reader
	resync bool

	buf        []byte // of Max
	start, end int    // what of buf is read and not used
}

// NewDecoder reads from r. With resync it skips bytes that are no frame; otherwise they
// are an error.
func NewDecoder(r io.Reader, resync bool) *Decoder {
	return &Decoder{r: r, resync: resync, buf: make([]byte, Max)}
}

// Next returns the next frame. Errors are the reader's (io.EOF also in the
// middle of a frame), or match ErrFraming.
func (d *Decoder) Next() (Frame, error) {
	for {
		f, size, err := parse(d.buf[d.start:d.end])
		switch {
		case err != nil && !d.resync:
			return Frame{}, err
		case err != nil:
			d.skip()
		case size > 0:
			d.start += size
			return f, nil
		default:
			if err := d.fill(); err != nil {
				return Frame{}, err
			}
		}
	}
}

// skip drops the first byte and those after it that cannot begin a frame.
func (d *Decoder) skip() {
	d.start++
	if at := bytes.IndexByte(d.buf[d.start:d.end], magic[0]); at >= 0 {
		d.start += at
	} else {
		d.start = d.end
	}
}

// fill reads more. Parse needs at most Max bytes, so there is room.
func (d *Decoder) fill() error {
	if d.start > 0 {
		d.end = copy(d.buf, d.buf[d.start:d.end])
		d.start = 0
	}
	n, err := d.r.Read(d.buf[d.end:])
	d.end += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// Seek returns the answer to the hello of an epoch, and skips all before it,
// whatever it is. It does not trust the length of a frame that may have been
// cut off: only the guest's answer can hold a new epoch.
func (d *Decoder) Seek(epoch uint64) (Frame, error) {
	for {
		b := d.buf[d.start:d.end]
		at := bytes.Index(b, append(magic[:], byte(Answer)))
		switch {
		case at < 0:
			d.start += max(0, len(b)-len(magic))
		case len(b)-at >= Head && binary.BigEndian.Uint64(b[at+8:]) != epoch:
			d.start += at + 1
			continue
		default:
			d.start += at
			f, size, err := parse(d.buf[d.start:d.end])
			if err != nil {
				d.start++
				continue
			}
			if size > 0 {
				d.start += size
				return f, nil
			}
		}
		if err := d.fill(); err != nil {
			return Frame{}, err
		}
	}
}

// Reset forgets a frame that was read in part.
func (d *Decoder) Reset() { d.start, d.end = 0, 0 }

// parse finds the frame at the start of b and its size; the size is 0 when b
// is only the beginning of one.
func parse(b []byte) (Frame, int, error) {
	n := min(len(b), len(magic))
	if !bytes.Equal(b[:n], magic[:n]) {
		return Frame{}, 0, fmt.Errorf("%w: begins with % x", ErrFraming, b[:n])
	}
	if len(b) < Head {
		return Frame{}, 0, nil
	}
	f := Frame{Kind: Kind(b[4]), Epoch: binary.BigEndian.Uint64(b[8:])}
	length := int(binary.BigEndian.Uint16(b[6:]))
	if f.Kind < Hello || f.Kind > Note || b[5] != 0 || length > MaxPayload {
		return Frame{}, 0, fmt.Errorf("%w: kind %d, length %d", ErrFraming, f.Kind, length)
	}
	size := Head + length + Tail
	if len(b) < size {
		return Frame{}, 0, nil
	}
	if binary.BigEndian.Uint64(b[Head+length:]) != f.Epoch {
		return Frame{}, 0, fmt.Errorf("%w: cut off", ErrFraming)
	}
	f.Payload = b[Head : Head+length]
	return f, size, nil
}
