package agentv1

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/containerd/errdefs"
)

// Stream is the agent's side of one call.
type Stream struct {
	net.Conn
	Body    json.RawMessage // of the call
	replied bool
	parts   *partList // nil without a trace
}

// Reply answers the call, at most once; nil means an empty answer. An answer that is too long or not JSON leaves
// the call unanswered.
func (s *Stream) Reply(answer any) error {
	reply := Reply{Parts: s.parts.list()}
	if answer != nil {
		body, err := json.Marshal(answer)
		if err != nil {
			return fmt.Errorf("encode reply: %w", err)
		}
		reply.Body = body
	}
	err := WriteFrame(s.Conn, reply, MaxReply)
	s.replied = !errors.Is(err, errdefs.ErrInvalidArgument)
	return err
}

// Handler serves one call. Its error is sent as the answer, unless it has replied already.
type Handler func(ctx context.Context, s *Stream) error

// Handlers serve the calls of an agent.
type Handlers map[Op]Handler

// Unary makes a handler from a function of the body that returns the answer.
func Unary[In, Out any](f func(context.Context, In) (Out, error)) Handler {
	return func(ctx context.Context, s *Stream) error {
		var in In
		if len(s.Body) > 0 {
			if err := json.Unmarshal(s.Body, &in); err != nil {
				return fmt.Errorf("decode body: %w: %w", errdefs.ErrInvalidArgument, err)
			}
		}
		out, err := f(ctx, in)
		if err != nil {
			return err
		}
		return s.Reply(out)
	}
}

// Waiting is like Unary, for a call without a time limit. The context ends when the host closes the stream.
func Waiting[In, Out any](f func(context.Context, In) (Out, error)) Handler {
	call := Unary(f)
	return func(ctx context.Context, s *Stream) error {
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			var b [1]byte
			_, _ = s.Read(b[:]) // the host sends no more data, so this returns at the end
			cancel()
		}()
		err := call(ctx, s)
		if err != nil && !s.replied {
			_ = WriteFrame(s.Conn, Reply{Error: ToError(err)}, MaxReply)
			s.replied = true
		}
		s.Close()
		<-done
		return nil
	}
}

// Serve reads the call of a stream, lets its handler answer, and closes the stream. The error is for a log.
func Serve(ctx context.Context, conn net.Conn, handlers Handlers) error {
	defer conn.Close()
	var call Call
	if err := ReadFrame(conn, &call, MaxCall); err != nil {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return fmt.Errorf("read call: %w", err)
	}
	s := &Stream{Conn: conn, Body: call.Body}
	if call.Trace {
		s.parts = &partList{}
		ctx = context.WithValue(ctx, partsKey{}, s.parts)
	}
	var err error
	if handler := handlers[call.Op]; handler != nil {
		err = handler(ctx, s)
	} else {
		err = fmt.Errorf("call %.32q: %w", string(call.Op), errdefs.ErrNotImplemented)
	}
	if s.replied {
		return err
	}
	if err == nil {
		return s.Reply(nil)
	}
	return WriteFrame(conn, Reply{Error: ToError(err)}, MaxReply)
}
