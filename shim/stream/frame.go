// Package stream carries byte streams between a pod's shim and who looks at
// the pod: one unix connection a stream, opened with a token.
//
// A connection begins with the token and a newline, answered by "ok" or an
// error's text and a newline, with "refused: " before it where nothing listens on
// a forwarded port. PORT_FORWARD and CONSOLE go on with raw bytes.
// ATTACH goes on with frames, both ways: a channel's byte, the payload's length
// as four bytes, most significant first, and the payload of at most MaxFrame
// bytes. The connection itself is the back-pressure: who does not read stops
// the process that writes.
package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// MaxFrame is the most that one frame carries, in bytes.
const MaxFrame = 32 << 10

// Channel says what a frame holds.
type Channel byte

// The channels. An empty payload on Stdin, Stdout or Stderr ends that channel.
const (
	Stdin  Channel = 0 // towards the process
	Stdout Channel = 1
	Stderr Channel = 2
	Resize Channel = 3 // towards the process: width and height, two bytes each
	Exited Channel = 4 // the process's exit code, four bytes; the last frame
	Failed Channel = 5 // an error's text; the last frame
	Leave  Channel = 6 // towards the process, which lives on without this client; the last frame
)

// ErrProtocol is returned for bytes that are no frame.
var ErrProtocol = errors.New("malformed frame")

const headerSize = 5

// Writer writes frames. Its methods may be called at once.
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

// Channel returns a writer whose bytes go out as frames of ch, and whose Close
// ends the channel.
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

// Next returns the next frame, whose payload is valid until the next call. It
// returns io.EOF between frames only.
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

// Size is a terminal's, in characters.
type Size struct{ Width, Height uint16 }

func (s Size) encode() []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, s.Width), s.Height)
}

// DecodeSize reads the payload of a Resize frame.
func DecodeSize(p []byte) (Size, error) {
	if len(p) != 4 {
		return Size{}, fmt.Errorf("%w: terminal size of %d bytes", ErrProtocol, len(p))
	}
	return Size{binary.BigEndian.Uint16(p), binary.BigEndian.Uint16(p[2:])}, nil
}

// EncodeExit makes the payload of an Exited frame.
func EncodeExit(code int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(code)) }
