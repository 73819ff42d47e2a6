// Package logs writes a container's output in the log format of the container
// runtime interface,
//
//	2006-01-02T15:04:05.000000000Z stdout F text
//
// and exactly once, also when the writing process is killed: after each write
// to the log it records, in a small file of its own, how far each stream has
// been logged and how long the log then was. A later process cuts the log back
// to that record and asks for the output from there on.
//
// A line that has no end yet is kept back, unacknowledged, until its end, the
// stream's end or MaxLine bytes, whichever comes first.
package logs

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// MaxLine is the most bytes of output in one line of the log; a longer line is
// split, and all its parts but the last are tagged P. A source that keeps
// output until it is acknowledged must hold more than this.
const MaxLine = 16 << 10

// ErrGap is returned for output that does not continue what was written so
// far: some of it is missing, or its offset is impossible.
var ErrGap = errors.New("output does not continue the log")

// Stream is one of a process's outputs.
type Stream int

// The streams.
const (
	Stdout Stream = iota
	Stderr
	streams
)

// String is the stream's name in the log and in the agent's protocol.
func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

// Writer writes one container's log. Its methods may be called at once.
type Writer struct {
	limit int64 // of the log, in bytes; 0 is none

	mu      sync.Mutex
	another chan struct{} // closed when the log is another, or none any more
	now     func() time.Time
	log     *os.File // nil: no log yet, every write fails with ErrNoLog
	records *os.File
	rec     record
	pending [streams][]byte // output after rec.logged without a line's end
	buf     []byte
}

var (
	// ErrNoLog is returned by Write while the writer has no log file.
	ErrNoLog = errors.New("log file is missing")
	// ErrFull is returned by Write while the log may not become larger.
	ErrFull = errors.New("log is full until it is rotated")
	// ErrClosed is returned by Write and Reopen after Close.
	ErrClosed = errors.New("log is closed")
)

// Open returns a writer that goes on where the record in the file at path
// ends, or begins one. It takes over log, which is open for writing and may be
// nil until Reopen. What an earlier process wrote to log after its last
// record is cut off. A damaged record is atomicfile.ErrCorrupt; log is then closed.
//
// A log that holds something does not grow beyond limit bytes, 0 for no limit: output
// is refused, and so waits at its source, until Reopen begins the log anew. One
// that is empty takes what MaxLine bytes of output make, whatever the limit.
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

// Another returns a channel that is closed at the next Reopen, or by Close. Who waits for
// that asks before the Write that is to fail.
func (w *Writer) Another() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.another
}

// Offset is where output of the stream is to be asked for: everything before
// it is in the log.
func (w *Writer) Offset(s Stream) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rec.logged[s]
}

// Write logs the output that begins at offset of the stream, and returns the
// offset up to which it need not be kept any longer. What was written before
// is skipped. After an error nothing of data is in the log, unless the offset
// returned with it says so, and the same output may be written again.
func (w *Writer) Write(s Stream, offset int64, data []byte) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	have := w.rec.logged[s] + int64(len(w.pending[s]))
	if offset < 0 || offset > have {
		return w.rec.logged[s], fmt.Errorf("%s at offset %d after %d: %w", s, offset, have, ErrGap)
	}
	data = data[min(have-offset, int64(len(data))):]
	// In pieces: a byte of output may become a line of fifty in the log.
	for len(data) > 0 {
		n := min(len(data), MaxLine)
		if err := w.write(s, data[:n], false); err != nil {
			return w.rec.logged[s], err
		}
		data = data[n:]
	}
	return w.rec.logged[s], nil
}

// End logs what is left of a stream that has ended, and returns the offset of
// its end.
func (w *Writer) End(s Stream) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.write(s, nil, true)
	return w.rec.logged[s], err
}

// Reopen goes on in another file, which the writer takes over, also on error;
// the log before is closed.
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

// Close closes the log and the record. Output that was kept back stays with
// its source.
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
