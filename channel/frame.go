package channel

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
	headLen = 16
	tailLen = 8
	// maxPayload keeps a frame within one write to the guest's port, which
	// takes 32 KiB at a time.
	maxPayload = 32<<10 - headLen - tailLen
	maxFrame   = headLen + maxPayload + tailLen
)

var magic = [4]byte{0xB5, 'k', 'h', 0xD1}

type kind byte

const (
	kindHello  kind = 1 // host to guest: begins the epoch; payload is a Hello
	kindAnswer kind = 2 // guest to host: the epoch has begun; payload is a Hello
	kindData   kind = 3 // both ways: bytes of the multiplexer
	kindReady  kind = 4 // guest to host: I am here; no payload, epoch 0
	kindEnd    kind = 5 // both ways: the session of this epoch is over; no payload
)

// errFraming says that bytes are not a sequence of frames.
var errFraming = errors.New("not a frame")

type frame struct {
	kind    kind
	epoch   uint64
	payload []byte // valid until the next frame is read
}

// appendFrame appends the encoding of a frame; payload is at most maxPayload.
func appendFrame(b []byte, k kind, epoch uint64, payload ...[]byte) []byte {
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

// decoder reads frames. It holds at most one frame's bytes.
type decoder struct {
	r io.Reader
	// resync makes the decoder skip bytes that are no frame. Otherwise they
	// are an error.
	resync bool

	buf        []byte // of maxFrame
	start, end int    // what of buf is read and not used
}

func newDecoder(r io.Reader, resync bool) *decoder {
	return &decoder{r: r, resync: resync, buf: make([]byte, maxFrame)}
}

// next returns the next frame. Errors are the reader's (io.EOF also in the
// middle of a frame), or match errFraming.
func (d *decoder) next() (frame, error) {
	for {
		f, size, err := parse(d.buf[d.start:d.end])
		switch {
		case err != nil && !d.resync:
			return frame{}, err
		case err != nil:
			d.skip()
		case size > 0:
			d.start += size
			return f, nil
		default:
			if err := d.fill(); err != nil {
				return frame{}, err
			}
		}
	}
}

// skip drops the first byte and those after it that cannot begin a frame.
func (d *decoder) skip() {
	d.start++
	if at := bytes.IndexByte(d.buf[d.start:d.end], magic[0]); at >= 0 {
		d.start += at
	} else {
		d.start = d.end
	}
}

// fill reads more. Parse needs at most maxFrame bytes, so there is room.
func (d *decoder) fill() error {
	d.end = copy(d.buf, d.buf[d.start:d.end])
	d.start = 0
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

// seek returns the answer to the hello of an epoch, and skips all before it,
// whatever it is. It does not trust the length of a frame that may have been
// cut off: only the guest's answer can hold a new epoch.
func (d *decoder) seek(epoch uint64) (frame, error) {
	for {
		b := d.buf[d.start:d.end]
		at := bytes.Index(b, append(magic[:], byte(kindAnswer)))
		switch {
		case at < 0:
			d.start += max(0, len(b)-len(magic))
		case len(b)-at >= headLen && binary.BigEndian.Uint64(b[at+8:]) != epoch:
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
			return frame{}, err
		}
	}
}

// reset forgets a frame that was read in part.
func (d *decoder) reset() { d.start, d.end = 0, 0 }

// parse finds the frame at the start of b and its size; the size is 0 when b
// is only the beginning of one.
func parse(b []byte) (frame, int, error) {
	n := min(len(b), len(magic))
	if !bytes.Equal(b[:n], magic[:n]) {
		return frame{}, 0, fmt.Errorf("%w: begins with % x", errFraming, b[:n])
	}
	if len(b) < headLen {
		return frame{}, 0, nil
	}
	f := frame{kind: kind(b[4]), epoch: binary.BigEndian.Uint64(b[8:])}
	length := int(binary.BigEndian.Uint16(b[6:]))
	if f.kind < kindHello || f.kind > kindEnd || b[5] != 0 || length > maxPayload {
		return frame{}, 0, fmt.Errorf("%w: kind %d, length %d", errFraming, f.kind, length)
	}
	size := headLen + length + tailLen
	if len(b) < size {
		return frame{}, 0, nil
	}
	if binary.BigEndian.Uint64(b[headLen+length:]) != f.epoch {
		return frame{}, 0, fmt.Errorf("%w: cut off", errFraming)
	}
	f.payload = b[headLen : headLen+length]
	return f, size, nil
}
