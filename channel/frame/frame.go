// Package frame defines the frames in which bytes travel over a virtio-serial port. Frames carry their session's epoch,
// so that each side finds the next whole frame even if a killed process has left one half sent. The package allocates a
// fixed amount and trusts no length.
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
// with numbers in big-endian order. The epoch after the payload detects a truncated frame with a length that covers the
// bytes after it.
const (
	Head = 16 // bytes before the payload
	Tail = 8  // bytes after the payload
	// MaxPayload keeps a frame within one write to the guest's port, which accepts 32 KiB at a time.
	MaxPayload = 32<<10 - Head - Tail
	Max        = Head + MaxPayload + Tail
)

var magic = [4]byte{0xB5, 'k', 'h', 0xD1}

// Kind is the purpose of a frame.
type Kind byte

// The kinds.
const (
	Hello  Kind = 1 // host to guest: starts the epoch; the payload identifies the host
	Answer Kind = 2 // guest to host: the epoch has started; the payload identifies the guest
	Data   Kind = 3 // both ways: bytes of the session
	Ready  Kind = 4 // guest to host: the guest is listening; no payload, epoch 0
	End    Kind = 5 // both ways: the session of this epoch is over; no payload
	Note   Kind = 6 // both ways, if both sides support it: data beside the session's bytes
)

// ErrFraming is returned for bytes that are not a sequence of frames.
var ErrFraming = errors.New("not a frame")

// Frame is one frame.
type Frame struct {
	Kind    Kind
	Epoch   uint64
	Payload []byte // valid until the next frame is read
}

// Append appends an encoded frame. The payload is at most MaxPayload.
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

// Enclose makes a frame of b in place. The payload already lies between the first Head and the last Tail bytes, and is
// at most MaxPayload.
func Enclose(b []byte, k Kind, epoch uint64) {
	Marks(b[:Head], b[len(b)-Tail:], k, epoch, len(b)-Head-Tail)
}

// Marks writes the bytes before and after a payload of length bytes, at most MaxPayload.
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
	start, end int    // the unused part of buf
}

// NewDecoder returns a decoder that reads from r. With resync it skips bytes outside frames; otherwise they are an
// error.
func NewDecoder(r io.Reader, resync bool) *Decoder {
	return &Decoder{r: r, resync: resync, buf: make([]byte, Max)}
}

// Next returns the next frame. Errors are the reader's (io.EOF also within a frame), or match ErrFraming.
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

// skip drops the first byte and further bytes that cannot start a frame.
func (d *Decoder) skip() {
	d.start++
	if at := bytes.IndexByte(d.buf[d.start:d.end], magic[0]); at >= 0 {
		d.start += at
	} else {
		d.start = d.end
	}
}

// fill reads more bytes. parse needs at most Max bytes, so buf has room.
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

// Seek skips all bytes before the answer to the hello of an epoch, and returns the answer. It does not trust the length
// of a frame that may be truncated: only the guest's answer can contain a new epoch.
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

// Reset drops a partly read frame.
func (d *Decoder) Reset() { d.start, d.end = 0, 0 }

// parse returns the frame at the start of b and its size; the size is 0 if b is only a part of one.
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
