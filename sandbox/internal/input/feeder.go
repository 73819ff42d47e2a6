// Package input feeds a process's stdin over the channel, which may be cut.
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

// ErrNoInput says that the process takes no more input.
var ErrNoInput = errors.New("the process has closed its stdin")

// Pass sends what r yields until r, the process or ctx ends. A cut of the channel while r is silent is noticed
// too: what was under way has to be sent again. A Read that goes on after
// the process has had enough ends when r's owner closes it.
func (f *Feeder) Pass(ctx context.Context, r io.Reader) error {
	type piece struct {
		data []byte
		err  error
	}
	pieces := make(chan piece)
	enough := make(chan struct{})
	defer close(enough) // not the context, which the stream lives by
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

// renew replaces a stream that has ended, if that was the channel's doing.
func (f *Feeder) renew(ctx context.Context) error {
	if f.stream == nil {
		return f.open(ctx)
	}
	return errors.New("the stream has ended")
}

// Feeder writes to a process's stdin, on a new stream when the channel is cut. Its
// methods are called by one goroutine; Close is the last.
type Feeder struct {
	Process agentv1.Process
	Agent   *agentv1.Client
	Link    *guest.Link     // that Agent speaks over
	Gone    <-chan struct{} // closed when the VM has ended
	Ended   <-chan struct{} // closed when the process has

	session *channel.Session
	stream  *agentv1.InputStream
	sent    int64  // offset of the end of unacked
	unacked []byte // at most MaxUnacked and one write
}

// MaxUnacked is how much of a process's input is kept for a channel that is
// cut: more is taken when the agent has acknowledged some. The channel's window
// bounds only what the guest has not read.
const MaxUnacked = 1 << 20

func (f *Feeder) open(ctx context.Context) (err error) {
	if f.session, err = f.Link.Connect(ctx); err != nil {
		return err
	}
	stream, err := f.Agent.Input(ctx, agentv1.Input{Process: f.Process})
	if err != nil {
		return err
	}
	at := stream.Offset()
	if f.unacked == nil {
		f.sent = at
	}
	first := f.sent - int64(len(f.unacked))
	if at < first || at > f.sent {
		stream.Close()
		return fmt.Errorf("%w: the guest is at offset %d of %d", ErrNoInput, at, f.sent)
	}
	f.unacked = f.unacked[at-first:]
	f.stream = stream
	// A write that waits for a process that reads no more must end.
	go func() {
		<-stream.Done()
		stream.Close()
	}()
	if len(f.unacked) > 0 {
		_, err = stream.Write(f.unacked)
	}
	return err
}

// write returns when data is on its way.
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
			f.unacked = append(f.unacked, data...)
			f.sent += int64(len(data))
			now := data
			data = nil // a retry sends what is not acknowledged
			_, err := f.stream.Write(now)
			return err
		}
		return nil
	})
}

// CloseInput makes the process read end of file.
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

// Drain waits for the agent to have passed everything on.
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

// retry repeats f on a new stream for as long as it is the channel that fails.
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
		if f.session != nil && !f.session.Ended() {
			return ErrNoInput // the agent has ended this stream alone
		}
		f.Close()
		if !b.Wait(ctx, f.Gone) {
			return context.Cause(ctx)
		}
	}
}

// room waits until few enough bytes are unacknowledged.
func (f *Feeder) room(ctx context.Context) error {
	for {
		f.trim()
		if len(f.unacked) <= MaxUnacked {
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

func (f *Feeder) trim() {
	if n := f.stream.Offset() - (f.sent - int64(len(f.unacked))); n > 0 {
		f.unacked = append([]byte{}, f.unacked[min(n, int64(len(f.unacked))):]...)
	}
}

// Close lets go of the process's stdin, which stays open.
func (f *Feeder) Close() error {
	if f.stream == nil {
		return nil
	}
	f.stream.Close()
	f.stream = nil
	return nil
}
