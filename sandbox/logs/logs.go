// Package logs writes a container's output in the log format of the container runtime interface,
//
//	2006-01-02T15:04:05.000000000Z stdout F text
//
// exactly once, also if the writing process is killed. After each write to the log it records in a small file how much
// of each stream is logged and how long the log is. A later process truncates the log to that record and requests the
// output from there on.
//
// An incomplete line is held back, unacknowledged, until its end, the stream's end or MaxLine bytes, whichever comes
// first.
package logs

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// MaxLine is the maximum number of bytes of output in one line of the log. A longer line is split, and all its parts
// but the last are tagged P. A source that keeps output until it is acknowledged must hold more than this.
const MaxLine = 16 << 10

// ErrGap is returned for output that does not continue the written output: some of it is missing, or its offset is
// impossible.
var ErrGap = errors.New("output does not continue the log")

// Stream is one of a process's outputs.
type Stream int

// The streams.
const (
	Stdout Stream = iota
	Stderr
	streams
)

// String returns the stream's name in the log and in the agent's protocol.
func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

// Writer writes one container's log. Its methods are safe for concurrent use.
type Writer struct {
	limit int64 // of the log, in bytes; 0 is no limit

	mu      sync.Mutex
	another chan struct{} // closed when the log is replaced or closed
	now     func() time.Time
	log     *os.File // nil without a log: every write fails with ErrNoLog
	records *os.File
	rec     record
	pending [streams][]byte // incomplete line after rec.logged
	buf     []byte
}

var (
	// ErrNoLog is returned by Write while the writer has no log file.
	ErrNoLog = errors.New("log file is missing")
	// ErrFull is returned by Write while the log has reached its limit.
	ErrFull = errors.New("log is full until it is rotated")
	// ErrClosed is returned by Write and Reopen after Close.
	ErrClosed = errors.New("log is closed")
)

// Open returns a writer that continues at the record in the file at path, or creates that file. It takes over log,
// which must be open for writing, or may be nil until Reopen. It cuts off output that an earlier process wrote to log
// after its last record. A damaged record is atomicfile.ErrCorrupt; Open then closes log.
//
// A nonempty log does not grow beyond limit bytes; 0 is no limit. Then Write refuses output, which waits at its source
// until Reopen replaces the log. An empty log accepts the lines for MaxLine bytes of output, whatever the limit.
func Open(path string, log *os.File, limit int64) (*Writer, error) {
	w := &Writer{limit: limit, now: time.Now, log: log, another: make(chan struct{})}
	if err := w.open(path); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *Writer) open(path string) (err error) {
	if w.records, w.rec, err = openRecord(path); err != nil {
		return err
	}
	if w.log == nil {
		return nil
	}
	id, size, err := identify(w.log)
	if err != nil {
		return err
	}
	if id == w.rec.file && size > w.rec.length {
		if err := w.log.Truncate(w.rec.length); err != nil {
			return fmt.Errorf("cut the log back to its record: %w", err)
		}
		size = w.rec.length
	}
	next := w.rec
	next.file, next.length = id, size
	return w.commit(next)
}

// Another returns a channel that is closed by the next Reopen or by Close. A caller that waits for a full log calls it
// before the Write that may fail.
func (w *Writer) Another() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.another
}

// Offset returns the offset of the stream's first output that is not in the log.
func (w *Writer) Offset(s Stream) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rec.logged[s]
}

// Write logs the output that begins at offset of the stream. It returns the offset up to which the source may drop
// output. It skips output that was written before. After an error no byte of data is in the log, unless the returned
// offset says so, and the same output may be written again.
func (w *Writer) Write(s Stream, offset int64, data []byte) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	have := w.rec.logged[s] + int64(len(w.pending[s]))
	if offset < 0 || offset > have {
		return w.rec.logged[s], fmt.Errorf("%s at offset %d after %d: %w", s, offset, have, ErrGap)
	}
	data = data[min(have-offset, int64(len(data))):]
	// Write in pieces, because one byte of output can become a line of fifty bytes in the log.
	for len(data) > 0 {
		n := min(len(data), MaxLine)
		if err := w.write(s, data[:n], false); err != nil {
			return w.rec.logged[s], err
		}
		data = data[n:]
	}
	return w.rec.logged[s], nil
}

// End logs the rest of a stream that has ended, and returns the offset of its end.
func (w *Writer) End(s Stream) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.write(s, nil, true)
	return w.rec.logged[s], err
}

// Reopen continues in another file, which the writer takes over, also on error. It closes the previous log.
func (w *Writer) Reopen(log *os.File) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.rec
	var err error
	if w.records == nil {
		err = ErrClosed
	} else if next.file, next.length, err = identify(log); err == nil {
		err = w.commit(next)
	}
	if err != nil {
		log.Close()
		return err
	}
	old := w.log
	w.log = log
	close(w.another)
	w.another = make(chan struct{})
	if old != nil {
		return old.Close()
	}
	return nil
}

// Close closes the log and the record. Output that was held back stays with its source.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	if w.records != nil {
		close(w.another)
	}
	for _, f := range []**os.File{&w.log, &w.records} {
		if *f != nil {
			errs = append(errs, (*f).Close())
			*f = nil
		}
	}
	return errors.Join(errs...)
}
