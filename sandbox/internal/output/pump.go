package output

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/guest"
	"github.com/bulkhead-project/bulkhead/sandbox/logs"
)

// Pump carries one stream of a process.
type Pump struct {
	Agent   *agentv1.Client
	Ended   <-chan struct{} // closed when the VM has ended
	Process agentv1.Process
	Stream  logs.Stream
	Hub     *Hub
	// Log keeps the output; nil keeps none.
	Log *logs.Writer
	// Resumed says that another shim has passed on what came first, if there is no log.
	Resumed bool
	// Logger is for what no caller asked.
	Logger *slog.Logger
}

// errLost is output that cannot be had: the agent has skipped some.
var errLost = errors.New("the guest has lost output")

// Carry reads the stream until its end or the end of ctx, asks for it again when the
// channel is cut, and then ends the hub.
func (p *Pump) Carry(ctx context.Context) {
	defer p.Hub.End()
	sink := p.sink()
	for b := (guest.Backoff{}); ; {
		err := p.copy(ctx, sink)
		var refusal *agentv1.Error
		switch {
		case err == nil, ctx.Err() != nil:
			return
		case errors.As(err, &refusal), errors.Is(err, logs.ErrGap), errors.Is(err, errLost), errors.Is(err, logs.ErrClosed):
			p.Logger.Warn("output ends early", "container", p.Process.Container, "exec", p.Process.Exec,
				"stream", p.Stream.String(), "error", err)
			return
		}
		if !b.Wait(ctx, p.Ended) {
			return
		}
	}
}

// copy reads the stream until its end (nil) or until it is cut.
func (p *Pump) copy(ctx context.Context, to sink) error {
	from := to.Offset()
	stream, err := p.Agent.Output(ctx, agentv1.Output{Process: p.Process, Stream: p.Stream.String(), Offset: from})
	if err != nil {
		return err
	}
	defer stream.Close()
	if from == 0 && p.Resumed && p.Log == nil {
		from = stream.Offset()
		p.Hub.skip(from)
	}
	acked := from
	for {
		offset, data, err := stream.Next()
		if errors.Is(err, io.EOF) {
			end, err := p.keep(ctx, to.End)
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
		p.Hub.send(ctx, offset, data)
		safe, err := p.keep(ctx, func() (int64, error) { return to.Write(offset, data) })
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

// keep writes to the log until it succeeds. While the log or the disk is full, output
// stays in the guest and the container waits.
func (p *Pump) keep(ctx context.Context, write func() (int64, error)) (int64, error) {
	for first := true; ; first = false {
		var another <-chan struct{}
		if p.Log != nil {
			another = p.Log.Another()
		}
		safe, err := write()
		if err == nil || errors.Is(err, logs.ErrGap) || errors.Is(err, logs.ErrClosed) {
			return safe, err
		}
		if first && !errors.Is(err, logs.ErrFull) { // which a container can have as often as it likes
			p.Logger.Error("cannot write the log; the container waits", "container", p.Process.Container, "error", err)
		}
		t := time.NewTimer(diskRetry)
		select {
		case <-t.C:
		case <-another:
			t.Stop()
		case <-ctx.Done():
			t.Stop()
			return 0, context.Cause(ctx)
		}
	}
}
