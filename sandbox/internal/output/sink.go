package output

import "github.com/bulkhead-project/bulkhead/sandbox/logs"

// sink keeps output: the log, or the hub alone.
type sink interface {
	// Offset is the offset of the first output that is still needed.
	Offset() int64
	// Write keeps output and returns the offset up to which the source may drop it.
	Write(offset int64, data []byte) (int64, error)
	// End keeps the output that Write held back.
	End() (int64, error)
}

func (p *Pump) sink() sink {
	if p.Log != nil {
		return logSink{p.Log, p.Stream}
	}
	return hubSink{p.Hub}
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

// hubSink is the sink of a stream without a log: output is done once the hub has sent it.
type hubSink struct{ h *Hub }

func (d hubSink) Offset() int64 {
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	return d.h.offset
}

func (d hubSink) Write(int64, []byte) (int64, error) { return d.Offset(), nil }
func (d hubSink) End() (int64, error)                { return d.Offset(), nil }
