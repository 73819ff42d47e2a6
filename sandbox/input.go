package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/channel"
)

// errNoInput says that the process takes no more input.
var errNoInput = errors.New("the process has closed its stdin")

// feed copies a client's input to the process until either ends.
func (s *Sandbox) feed(ctx context.Context, p *process, r io.Reader) error {
	select {
	case <-p.started:
	case <-ctx.Done():
		s.unfeed(p)
		return context.Cause(ctx)
	}
	if p.machine == nil { // it ended before this shim began
		s.unfeed(p)
		return errNoInput
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.machine.ctx, func() { cancel(ErrMachineGone) })()
	in := &feeder{p: p}
	err := in.pass(ctx, r)
	closing := s.unfeed(p)
	// A client that is gone leaves a context that has ended; its process must
	// still learn that nothing more comes.
	end, done := p.machine.call(context.WithoutCancel(ctx), s.o.CallTimeout)
	defer done()
	err = endOf(err)
	if closing && !errors.Is(err, errNoInput) {
		err = errors.Join(err, in.closeInput(end))
		in.drain(end)
	}
	return errors.Join(err, in.close())
}

// pass sends what r yields. A cut of the channel while r is silent is noticed
// too: what was under way has to be sent again. A Read that goes on after
// the process has had enough ends when r's owner closes it.
func (f *feeder) pass(ctx context.Context, r io.Reader) error {
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
func (f *feeder) renew(ctx context.Context) error {
	if f.stream == nil {
		return f.open(ctx)
	}
	return errors.New("the stream has ended")
}

func endOf(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// unfeed gives the process's stdin up, and says whether it is to be closed.
func (s *Sandbox) unfeed(p *process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.fed = false
	return p.id.Exec != "" || p.stdinOnce || p.closeIn
}

// feeder writes to a process's stdin, on a new stream when the channel is cut.
type feeder struct {
	p       *process
	session *channel.Session
	stream  *agentv1.InputStream
	sent    int64  // offset of the end of unacked
	unacked []byte // at most maxUnacked and one write
}

// maxUnacked is how much of a process's input is kept for a channel that is
// cut: more is taken when the agent has acknowledged some. The channel's window
// bounds only what the guest has not read.
const maxUnacked = 1 << 20

func (f *feeder) open(ctx context.Context) (err error) {
	if f.session, err = f.p.machine.link.connect(ctx); err != nil {
		return err
	}
	stream, err := f.p.machine.agent.Input(ctx, agentv1.Input{Process: f.p.id})
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
		return fmt.Errorf("%w: the guest is at offset %d of %d", errNoInput, at, f.sent)
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
func (f *feeder) write(ctx context.Context, data []byte) error {
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

// closeInput makes the process read end of file.
func (f *feeder) closeInput(ctx context.Context) error {
	return f.retry(ctx, func() error {
		if f.stream == nil {
			if err := f.open(ctx); err != nil {
				return err
			}
		}
		return f.stream.CloseInput()
	})
}

// drain waits for the agent to have passed everything on.
func (f *feeder) drain(ctx context.Context) {
	if f.stream == nil {
		return
	}
	select {
	case <-f.stream.Done():
	case <-f.p.done:
	case <-ctx.Done():
	}
}

// cutGrace is how much later than its streams' a session's end may be known.
const cutGrace = 200 * time.Millisecond

// retry repeats f on a new stream for as long as it is the channel that fails.
func (f *feeder) retry(ctx context.Context, try func() error) error {
	for b := (backoff{}); ; {
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var refusal *agentv1.Error
		if errors.As(err, &refusal) || errors.Is(err, errNoInput) {
			return fmt.Errorf("%w: %w", errNoInput, err)
		}
		if f.session != nil {
			late := time.NewTimer(cutGrace)
			select {
			case <-f.session.Done():
				late.Stop()
			case <-late.C:
				return errNoInput // the agent has ended this stream alone
			}
		}
		f.close()
		if !b.wait(ctx, f.p.machine) {
			return context.Cause(ctx)
		}
	}
}

// room waits until few enough bytes are unacknowledged.
func (f *feeder) room(ctx context.Context) error {
	for {
		f.trim()
		if len(f.unacked) <= maxUnacked {
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

func (f *feeder) trim() {
	if n := f.stream.Offset() - (f.sent - int64(len(f.unacked))); n > 0 {
		f.unacked = append([]byte{}, f.unacked[min(n, int64(len(f.unacked))):]...)
	}
}

func (f *feeder) close() error {
	if f.stream == nil {
		return nil
	}
	f.stream.Close()
	f.stream = nil
	return nil
}

// CloseInput closes a process's stdin once everything attached has been fed.
func (s *Sandbox) CloseInput(ctx context.Context, id Process) error {
	s.mu.Lock()
	p, err := s.find(id)
	if err == nil && !p.stdin {
		err = fmt.Errorf("%s: %w: it has no stdin", subject(id), ErrInvalid)
	}
	fed := false
	if err == nil {
		p.closeIn, fed = true, p.fed
		err = expect(p.subject(), "close the stdin of", p.state, Running, Paused)
	}
	s.mu.Unlock()
	if err != nil || fed {
		return err
	}
	call, done := p.machine.call(ctx, s.o.CallTimeout)
	defer done()
	f := &feeder{p: p}
	err = f.closeInput(call)
	f.drain(call)
	if errors.Is(err, errNoInput) {
		err = nil
	}
	return errors.Join(err, f.close())
}
