// Package stream carries byte streams between a pod's shim and its clients. Each stream is one unix connection, opened
// with a token.
//
// The client sends the token and a newline. The server answers "ok" or an error text and a newline. If nothing listens
// on a forwarded port, "refused: " precedes the text. PORT_FORWARD and CONSOLE continue with raw bytes. ATTACH
// continues with frames in both directions: one byte for the channel, the payload's length as four bytes, most
// significant first, and the payload of at most MaxFrame bytes. The connection provides flow control: a client that
// does not read blocks the process that writes.
package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// MaxFrame is the maximum payload of a frame, in bytes.
const MaxFrame = 32 << 10

// Channel is the kind of a frame.
type Channel byte

// The channels. An empty payload on Stdin, Stdout or Stderr ends that channel.
const (
	Stdin  Channel = 0 // towards the process
	Stdout Channel = 1
	Stderr Channel = 2
	Resize Channel = 3 // to the process: width and height, two bytes each
	Exited Channel = 4 // the process's exit code, four bytes; the last frame
	Failed Channel = 5 // an error's text; the last frame
	Leave  Channel = 6 // towards the process, which lives on without this client; the last frame
)

// ErrProtocol is returned for malformed frames.
var ErrProtocol = errors.New("malformed frame")

const headerSize = 5

// Writer writes frames. Its methods are safe for concurrent use.
type Writer struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
}

// NewWriter returns a Writer of frames to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Frame writes one frame.
func (w *Writer) Frame(ch Channel, payload []byte) error {
	if len(payload) > MaxFrame {
		return fmt.Errorf("%w: %d bytes of payload", ErrProtocol, len(payload))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = append(w.buf[:0], byte(ch))
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(len(payload)))
	w.buf = append(w.buf, payload...)
	_, err := w.w.Write(w.buf)
	return err
}

// Channel returns a writer that sends its bytes as frames of ch. Its Close ends the channel.
func (w *Writer) Channel(ch Channel) io.WriteCloser { return &channelWriter{w, ch} }

type channelWriter struct {
	w  *Writer
	ch Channel
}

func (c *channelWriter) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n := min(len(p)-done, MaxFrame)
		if err := c.w.Frame(c.ch, p[done:done+n]); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

func (c *channelWriter) Close() error { return c.w.Frame(c.ch, nil) }

// Reader reads frames. It is used by one goroutine.
type Reader struct {
	r   io.Reader
	buf [MaxFrame]byte
}

// NewReader returns a Reader of frames from r.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Next returns the next frame. The payload is valid until the next call. It returns io.EOF only between frames.
func (r *Reader) Next() (Channel, []byte, error) {
	if _, err := io.ReadFull(r.r, r.buf[:headerSize]); err != nil {
		return 0, nil, err
	}
	ch, n := Channel(r.buf[0]), binary.BigEndian.Uint32(r.buf[1:])
	if n > MaxFrame {
		return 0, nil, fmt.Errorf("%w: %d bytes of payload", ErrProtocol, n)
	}
	if _, err := io.ReadFull(r.r, r.buf[:n]); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return ch, r.buf[:n], nil
}

// Size is the size of a terminal, in characters.
type Size struct{ Width, Height uint16 }

func (s Size) encode() []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, s.Width), s.Height)
}

// DecodeSize decodes the payload of a Resize frame.
func DecodeSize(p []byte) (Size, error) {
	if len(p) != 4 {
		return Size{}, fmt.Errorf("%w: terminal size of %d bytes", ErrProtocol, len(p))
	}
	return Size{binary.BigEndian.Uint16(p), binary.BigEndian.Uint16(p[2:])}, nil
}

// EncodeExit returns the payload of an Exited frame.
func EncodeExit(code int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(code)) }
