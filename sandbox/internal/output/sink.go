package output

import "github.com/bulkhead-project/bulkhead/sandbox/logs"

// sink is what keeps output: the log, or nobody.
type sink interface {
	// Offset is where output is to be asked for.
	Offset() int64
	// Write takes output and returns up to where it need not be kept.
	Write(offset int64, data []byte) (int64, error)
	// End takes what Write kept back.
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

// hubSink is a stream without a log: what the hub has sent is done with.
type hubSink struct{ h *Hub }

func (d hubSink) Offset() int64 {
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	return d.h.offset
}

func (d hubSink) Write(int64, []byte) (int64, error) { return d.Offset(), nil }
func (d hubSink) End() (int64, error)                { return d.Offset(), nil }
