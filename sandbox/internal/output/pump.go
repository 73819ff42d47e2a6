package output

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/guest"
	"github.com/bulkhead-project/bulkhead/sandbox/logs"
)

// Pump copies one stream of a process.
type Pump struct {
	Agent   *agentv1.Client
	Ended   <-chan struct{} // closed when the VM has ended
	Process agentv1.Process
	Stream  logs.Stream
	Hub     *Hub
	// Log stores the output; it may be nil.
	Log *logs.Writer
	// Target passes the output on to a file of the host; it may be nil. A process has no Log then.
	Target *Target
	// Resumed tells, for a process without a log, that an earlier shim has copied the first part of the output.
	Resumed bool
	// Logger receives errors that cannot be returned to a caller.
	Logger *slog.Logger
}

// errLost is returned if the agent has skipped some output.
var errLost = errors.New("the guest has lost output")

// Run reads the stream until its end or the end of ctx, and then ends the hub. It reopens the stream after the
// channel was cut.
func (p *Pump) Run(ctx context.Context) {
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
		case errors.Is(err, ErrNoReader) && p.endGuest(ctx, err):
			return
		}
		if !b.Wait(ctx, p.Ended) {
			return
		}
	}
}

// endGuest closes the stream in the guest, so that the process notices that its reader is gone. It returns false if it
// must be called again. An agent that cannot close a stream goes on, and its output is discarded.
func (p *Pump) endGuest(ctx context.Context, cause error) bool {
	p.Logger.Debug("output has no reader", "container", p.Process.Container, "exec", p.Process.Exec,
		"stream", p.Stream.String(), "error", cause)
	err := p.Agent.NoReader(ctx, agentv1.NoReader{Process: p.Process, Stream: p.Stream.String()})
	if errors.Is(err, errdefs.ErrNotImplemented) {
		p.Target.Discard()
		return false
	}
	var refusal *agentv1.Error
	return err == nil || errors.As(err, &refusal)
}

// copy reads the stream until its end (nil) or until it is cut.
func (p *Pump) copy(ctx context.Context, to sink) error {
	from := to.Offset()
	stream, err := p.Agent.Output(ctx, agentv1.Output{Process: p.Process, Stream: p.Stream.String(), Offset: from})
	if err != nil {
		return err
	}
	defer stream.Close()
	if from == 0 && p.Resumed && p.Log == nil && p.Target == nil {
		from = stream.Offset()
		p.Hub.skip(from)
	}
	acked := from
	for {
		offset, data, err := stream.Next()
		if errors.Is(err, io.EOF) {
			end, err := to.End(ctx)
			if err == nil {
				_ = stream.Ack(end) // the agent may be gone already
			}
			return err
		}
		if err != nil {
			return err
		}
		if offset > from { // the skipped bytes are lost
			return errLost
		}
		from = offset + int64(len(data))
		p.Hub.send(ctx, offset, data)
		safe, err := to.Write(ctx, offset, data)
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

// diskRetry is the interval between attempts to write a log: a full disk sends no event when it has space again.
const diskRetry = time.Second

// keep writes to the log until it succeeds. While the log or the disk is full, output stays in the guest and the
// container waits.
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
		if first && !errors.Is(err, logs.ErrFull) { // a container can cause ErrFull at will
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
