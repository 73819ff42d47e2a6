// Package input feeds a process's stdin over the channel, and resumes after the channel was cut.
package input

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/channel"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/guest"
)

// ErrNoInput is returned when the process accepts no more input.
var ErrNoInput = errors.New("the process has closed its stdin")

// Pass sends the bytes from r until r, the process or ctx ends. It also notices a cut of the channel while r is silent,
// and then sends the unacknowledged bytes again. If the process ends first, a blocked Read remains until r's owner
// closes r.
func (f *Feeder) Pass(ctx context.Context, r io.Reader) error {
	type piece struct {
		data []byte
		err  error
	}
	pieces := make(chan piece)
	enough := make(chan struct{})
	defer close(enough) // not ctx, which the stream depends on
	go func() {
		for {
			buf := make([]byte, agentv1.MaxChunk)
			n, err := r.Read(buf)
			select {
			case pieces <- piece{buf[:n], err}:
			case <-enough:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		var ended <-chan struct{}
		if f.stream != nil {
			ended = f.stream.Done()
		}
		var err error
		select {
		case got := <-pieces:
			if len(got.data) > 0 {
				err = f.write(ctx, got.data)
			}
			if err == nil {
				err = got.err
			}
		case <-ended:
			err = f.retry(ctx, func() error { return f.renew(ctx) })
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// renew opens a stream, or fails so that retry replaces a stream that has ended.
func (f *Feeder) renew(ctx context.Context) error {
	if f.stream == nil {
		return f.open(ctx)
	}
	return errors.New("the stream has ended")
}

// Feeder writes to a process's stdin, on a new stream after the channel was cut. One goroutine calls its methods; Close
// is the last call.
type Feeder struct {
	Process agentv1.Process
	Agent   *agentv1.Client
	Link    *guest.Link     // the link that Agent uses
	Gone    <-chan struct{} // closed when the VM has ended
	Ended   <-chan struct{} // closed when the process has ended

	// Sent and Unacked are the input that an earlier Feeder has sent: the offset of its end, and the last bytes before
	// that. Both are zero without an earlier one. Sent is 0 if the input of an earlier one is not known.
	Sent    int64
	Unacked []byte
	// Bound replaces MaxUnacked if it is not 0.
	Bound int

	session *channel.Session
	stream  *agentv1.InputStream
	opened  bool
}

// MaxUnacked bounds the unacknowledged input, in bytes, that is kept for a repetition after a cut. The channel's window
// bounds only the bytes that the guest has not read. One write more may be kept.
const MaxUnacked = 1 << 20

// Open connects to the process's stdin, unless a Write has done so. Sent is then the offset of the next byte of input.
func (f *Feeder) Open(ctx context.Context) error { return f.write(ctx, nil) }

func (f *Feeder) open(ctx context.Context) (err error) {
	if f.session, err = f.Link.Connect(ctx); err != nil {
		return err
	}
	stream, err := f.Agent.Input(ctx, agentv1.Input{Process: f.Process})
	if err != nil {
		return err
	}
	at := stream.Offset()
	if !f.opened && f.Sent == 0 {
		f.Sent = at
	}
	f.opened = true
	first := f.Sent - int64(len(f.Unacked))
	if at < first || at > f.Sent {
		stream.Close()
		return fmt.Errorf("%w: the guest is at offset %d of %d", ErrNoInput, at, f.Sent)
	}
	f.Unacked = f.Unacked[at-first:]
	f.stream = stream
	// Closing the stream unblocks a write to a process that has stopped reading.
	go func() {
		<-stream.Done()
		stream.Close()
	}()
	if len(f.Unacked) > 0 {
		_, err = stream.Write(f.Unacked)
	}
	return err
}

// write returns when data is in the stream.
func (f *Feeder) write(ctx context.Context, data []byte) error {
	return f.retry(ctx, func() error {
		if f.stream == nil {
			if err := f.open(ctx); err != nil {
				return err
			}
		}
		if len(data) > 0 {
			if err := f.room(ctx); err != nil {
				return err
			}
			f.Unacked = append(f.Unacked, data...)
			f.Sent += int64(len(data))
			now := data
			data = nil // a retry sends the unacknowledged bytes
			_, err := f.stream.Write(now)
			return err
		}
		return nil
	})
}

// CloseInput sends end of file to the process.
func (f *Feeder) CloseInput(ctx context.Context) error {
	return f.retry(ctx, func() error {
		if f.stream == nil {
			if err := f.open(ctx); err != nil {
				return err
			}
		}
		return f.stream.CloseInput()
	})
}

// Drain waits until the agent has passed all input to the process.
func (f *Feeder) Drain(ctx context.Context) {
	if f.stream == nil {
		return
	}
	select {
	case <-f.stream.Done():
	case <-f.Ended:
	case <-ctx.Done():
	}
}

// retry repeats try on a new stream as long as the channel is the cause of the failure, or has too many streams.
func (f *Feeder) retry(ctx context.Context, try func() error) error {
	for b := (guest.Backoff{}); ; {
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var refusal *agentv1.Error
		if errors.As(err, &refusal) || errors.Is(err, ErrNoInput) {
			return fmt.Errorf("%w: %w", ErrNoInput, err)
		}
		full := errors.Is(err, channel.ErrTooMany) // there is no event for a stream that ends
		if f.session != nil && !f.session.Ended() && !full {
			return ErrNoInput // the agent ended only this stream
		}
		f.Close()
		if !b.Wait(ctx, f.Gone) {
			return context.Cause(ctx)
		}
	}
}

// room waits until at most MaxUnacked bytes are unacknowledged.
func (f *Feeder) room(ctx context.Context) error {
	for {
		f.trim()
		if len(f.Unacked) <= f.bound() {
			return nil
		}
		select {
		case <-f.stream.Moved():
		case <-f.stream.Done():
			return net.ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (f *Feeder) bound() int {
	if f.Bound > 0 {
		return f.Bound
	}
	return MaxUnacked
}

func (f *Feeder) trim() {
	if n := f.stream.Offset() - (f.Sent - int64(len(f.Unacked))); n > 0 {
		f.Unacked = append([]byte{}, f.Unacked[min(n, int64(len(f.Unacked))):]...)
	}
}

// Close closes the stream. The process's stdin stays open.
func (f *Feeder) Close() error {
	if f.stream == nil {
		return nil
	}
	f.stream.Close()
	f.stream = nil
	return nil
}
