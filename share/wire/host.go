package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/channel/frame"
)

// Host is the server's side of one session. Next must be called by one goroutine at a time; Reply is safe for
// concurrent use.
type Host struct {
	conn  net.Conn
	d     *frame.Decoder
	in    assembly
	epoch uint64
	ring  *ring // nil for none

	mu  sync.Mutex // guards the following fields
	out net.Buffers
	// marks holds the heads and tails of a message's frames.
	marks []byte
}

// A hello is repeated until it is answered: half a frame of a former server may have swallowed it, or the guest's
// forwarder has not started yet.
const helloEvery = 2 * time.Second

// Greet starts a session over a connection to the guest's port, which it owns. It returns when the guest has answered,
// or ctx has ended.
func Greet(ctx context.Context, conn net.Conn) (*Host, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	h, err := greet(conn)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("greet the guest: %w", err)
	}
	return h, nil
}

func greet(conn net.Conn) (*Host, error) {
	var number [8]byte
	// Package crypto/rand would enlarge the guest's forwarder, which does not need it.
	if _, err := unix.Getrandom(number[:], 0); err != nil {
		return nil, err
	}
	h := &Host{conn: conn, d: frame.NewDecoder(conn, false), epoch: binary.NativeEndian.Uint64(number[:]) | 1}
	// The zeros, as long as the longest frame, complete a former server's unfinished frame.
	hello := frame.Append(make([]byte, frame.Max), frame.Hello, h.epoch, []byte{version})
	for {
		if err := conn.SetDeadline(time.Now().Add(helloEvery)); err != nil {
			return nil, err
		}
		_, err := conn.Write(hello)
		if err == nil {
			var answer frame.Frame
			if answer, err = h.d.Seek(h.epoch); err == nil {
				if len(answer.Payload) != 1 || answer.Payload[0] != version {
					return nil, fmt.Errorf("%w: it answers % .16x", errGuest, answer.Payload)
				}
				return h, conn.SetDeadline(time.Time{})
			}
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
	}
}

// Next returns the guest's next request, which is valid until the next call. Errors are the connection's (io.EOF when
// the VM has closed it), or match errGuest.
func (h *Host) Next() ([]byte, error) {
	for {
		f, err := h.d.Next()
		if errors.Is(err, frame.ErrFraming) {
			return nil, fmt.Errorf("%w: %w", errGuest, err)
		}
		if err != nil {
			return nil, err
		}
		if f.Epoch == h.epoch && f.Kind == frame.Note && h.ring != nil {
			h.ring.onNote(f.Payload)
		}
		if f.Epoch != h.epoch || f.Kind != frame.Data {
			continue // from a former session, or another answer to the hello
		}
		message, err := h.in.add(f.Payload, minRequest)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errGuest, err)
		}
		if message == nil {
			continue
		}
		if h.ring != nil {
			h.ring.updateReads(message)
		}
		return message, nil
	}
}

// Reply sends a message, of at most MaxMessage bytes.
func (h *Host) Reply(message []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reply(message)
}

// reply sends a message. The caller holds mu.
func (h *Host) reply(message []byte) error {
	if len(message) < minReply || len(message) > MaxMessage {
		return fmt.Errorf("a reply of %d bytes: %w", len(message), io.ErrShortBuffer)
	}
	const marks = frame.Head + frame.Tail
	frames := (len(message) + frame.MaxPayload - 1) / frame.MaxPayload
	if cap(h.marks) < frames*marks {
		h.marks = make([]byte, frames*marks)
	}
	out := h.out[:0]
	for i := range frames {
		m := h.marks[i*marks : (i+1)*marks]
		part := message[i*frame.MaxPayload:]
		part = part[:min(len(part), frame.MaxPayload)]
		frame.Marks(m[:frame.Head], m[frame.Head:], frame.Data, h.epoch, len(part))
		out = append(out, m[:frame.Head], part, m[frame.Head:])
	}
	h.out = out
	_, err := out.WriteTo(h.conn)
	return err
}

// Close ends the session.
func (h *Host) Close() error { return h.conn.Close() }
