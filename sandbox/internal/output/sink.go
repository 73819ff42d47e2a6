package output

import (
	"context"
)

// sink keeps output: the log, a file of the host, or the hub alone.
type sink interface {
	// Offset is the offset of the first output that is still needed.
	Offset() int64
	// Write keeps output and returns the offset up to which the source may drop it. It waits while there is no room.
	Write(ctx context.Context, offset int64, data []byte) (int64, error)
	// End keeps the output that Write held back.
	End(ctx context.Context) (int64, error)
}

func (p *Pump) sink() sink {
	switch {
	case p.Log != nil:
		return logSink{p}
	case p.Target != nil:
		return p.Target
	}
	return hubSink{p.Hub}
}

type logSink struct{ p *Pump }

func (l logSink) Offset() int64 { return l.p.Log.Offset(l.p.Stream) }

func (l logSink) Write(ctx context.Context, offset int64, data []byte) (int64, error) {
	return l.p.keep(ctx, func() (int64, error) { return l.p.Log.Write(l.p.Stream, offset, data) })
}

func (l logSink) End(ctx context.Context) (int64, error) {
	return l.p.keep(ctx, func() (int64, error) { return l.p.Log.End(l.p.Stream) })
}

// hubSink is the sink of a stream without a log: output is done once the hub has sent it.
type hubSink struct{ h *Hub }

func (d hubSink) Offset() int64 {
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	return d.h.offset
}

func (d hubSink) Write(context.Context, int64, []byte) (int64, error) { return d.Offset(), nil }
func (d hubSink) End(context.Context) (int64, error)                  { return d.Offset(), nil }
