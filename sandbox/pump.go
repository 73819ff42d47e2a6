package sandbox

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/sandbox/logs"
)

// pump carries a process's output to its log and its clients, until it ends.
func (s *Sandbox) pump(p *process) {
	defer close(p.pumped)
	ctx := p.machine.ctx
	if p.output == OutputStream {
		// Nobody's output yet: it stays in the guest, and blocks the process
		// when that is full.
		select {
		case <-p.attached:
		case <-ctx.Done():
		}
	}
	var both sync.WaitGroup
	for i, h := range p.out {
		if h == nil {
			continue
		}
		both.Go(func() {
			defer h.end()
			s.pumpStream(ctx, p, logs.Stream(i), h)
		})
	}
	both.Wait()
}

// errLost is output that cannot be had: the agent has skipped some.
var errLost = errors.New("the guest has lost output")

// pumpStream reads one stream, and asks for it again when the channel is cut.
func (s *Sandbox) pumpStream(ctx context.Context, p *process, st logs.Stream, h *hub) {
	sink := s.sink(p, st, h)
	for b := (backoff{}); ; {
		err := s.copyStream(ctx, p, st, h, sink)
		var refusal *agentv1.Error
		switch {
		case err == nil, ctx.Err() != nil:
			return
		case errors.As(err, &refusal), errors.Is(err, logs.ErrGap), errors.Is(err, errLost), errors.Is(err, logs.ErrClosed):
			s.log.Warn("output ends early", "process", p.subject(), "stream", st.String(), "error", err)
			return
		}
		if !b.wait(ctx, p.machine) {
			return
		}
	}
}

// sink is what keeps output: the log, or nobody.
type sink interface {
	// Offset is where output is to be asked for.
	Offset() int64
	// Write takes output and returns up to where it need not be kept.
	Write(offset int64, data []byte) (int64, error)
	// End takes what Write kept back.
	End() (int64, error)
}

func (s *Sandbox) sink(p *process, st logs.Stream, h *hub) sink {
	if p.output == OutputLog {
		return logSink{p.log, st}
	}
	return hubSink{h}
}

type logSink struct {
	w  *logs.Writer
	st logs.Stream
}

func (l logSink) Offset() int64 { return l.w.Offset(l.st) }
func (l logSink) Write(offset int64, data []byte) (int64, error) {
	return l.w.Write(l.st, offset, data)
}
func (l logSink) End() (int64, error) { return l.w.End(l.st) }

// hubSink is a stream without a log: what its clients were given is done with.
type hubSink struct{ h *hub }

func (d hubSink) Offset() int64 {
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	return d.h.offset
}

func (d hubSink) Write(offset int64, data []byte) (int64, error) {
	if end := d.Offset(); end == offset+int64(len(data)) {
		return end, nil
	}
	return 0, errLost
}

func (d hubSink) End() (int64, error) { return d.Offset(), nil }

// copyStream reads a stream until its end (nil) or until it is cut.
func (s *Sandbox) copyStream(ctx context.Context, p *process, st logs.Stream, h *hub, to sink) error {
	from := to.Offset()
	stream, err := p.machine.agent.Output(ctx, agentv1.Output{Process: p.id, Stream: st.String(), Offset: from})
	if err != nil {
		return err
	}
	defer stream.Close()
	if from == 0 && p.restored && p.output != OutputLog {
		from = stream.Offset() // the shim before has passed on what came first
		h.skip(from)
	}
	acked := from
	for {
		offset, data, err := stream.Next()
		if errors.Is(err, io.EOF) {
			end, err := s.keep(ctx, p, to.End)
			if err == nil {
				_ = stream.Ack(end) // the agent may be gone by now
			}
			return err
		}
		if err != nil {
			return err
		}
		if offset > from { // what the guest skipped is not there to be had
			return errLost
		}
		from = offset + int64(len(data))
		h.send(ctx, offset, data)
		safe, err := s.keep(ctx, p, func() (int64, error) { return to.Write(offset, data) })
		if err != nil {
			return err
		}
		if safe > acked {
			if err := stream.Ack(safe); err != nil {
				return err
			}
			acked = safe
		}
	}
}

// diskRetry is how often a log that cannot be written is tried again: a full
// disk has no event to wait for.
const diskRetry = time.Second

// keep writes to the log until it succeeds. While the disk is full, output
// stays in the guest and the container waits.
func (s *Sandbox) keep(ctx context.Context, p *process, write func() (int64, error)) (int64, error) {
	for first := true; ; first = false {
		safe, err := write()
		if err == nil || errors.Is(err, logs.ErrGap) || errors.Is(err, errLost) || errors.Is(err, logs.ErrClosed) {
			return safe, err
		}
		if first {
			s.log.Error("log not written; the container waits", "process", p.subject(), "error", err)
		}
		t := time.NewTimer(diskRetry)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return 0, context.Cause(ctx)
		}
	}
}
