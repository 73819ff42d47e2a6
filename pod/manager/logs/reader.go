// Package logs reads a container's output from files in the CRI's log format. DIR/N.log is the log of run N, beside the
// older file of a rotated log (podlogs.Older).
//
// k8s.io/cri-client/pkg/logs reads such files too, but ignores the older file. So it loses the lines before a rotation,
// and the lines between its last read and the rename. It also returns text instead of stream and time, and it asks the
// runtime about the container, even one that no longer exists.
package logs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	podlogs "github.com/bulkhead-project/bulkhead/pod/logs"
)

// Options select the output to read.
type Options struct {
	Run   int       // the run with the first log
	Tail  int64     // start with this many existing lines; less than 0: all
	Since time.Time // skip earlier lines
	// There stops at the end that the log had when it was opened.
	There bool
}

// Reader reads the logs of one container, one run after the other. It is not safe for concurrent use.
type Reader struct {
	dir   string
	out   func(Line) error
	since time.Time

	n     int
	lines int64             // limit of the first opened file; less than 0: all
	there *io.LimitedReader // limits the reads to the initial content; nil for no limit
	f     *os.File
	r     *bufio.Reader
	part  []byte // the beginning of an unfinished line

	at atomic.Pointer[os.FileInfo] // of f or of the last file; nil before the first
}

// New prepares to read the logs in dir and to pass each line to out. The caller calls Close.
func New(dir string, o Options, out func(Line) error) *Reader {
	r := &Reader{dir: dir, out: out, n: o.Run, lines: o.Tail, since: o.Since}
	if o.There {
		r.there = &io.LimitedReader{}
	}
	return r
}

// Run returns the number of the run with the current log.
func (r *Reader) Run() int { return r.n }

// Exists reports whether a log of the run exists.
func (r *Reader) Exists() bool {
	_, err := os.Stat(r.path())
	_, older := os.Stat(podlogs.Older(r.path()))
	return err == nil || older == nil
}

// Next continues with the container's next run.
func (r *Reader) Next() {
	r.Close()
	r.n++
}

// Close closes the current log.
func (r *Reader) Close() {
	if r.f != nil {
		r.f.Close()
	}
	r.f, r.part = nil, nil
}

// Drain passes on all complete lines since the last call. It returns the error of out, or of a file that cannot be
// read. A missing file counts as empty.
func (r *Reader) Drain() error {
	if r.f == nil {
		if err := r.openFirst(); r.f == nil {
			return err
		}
	}
	for {
		if err := r.read(); err != nil {
			return err
		}
		if r.there != nil && r.there.N <= 0 {
			return nil
		}
		// Read the rest of the old file before the new one: lines may have been written before the rotation.
		if rotated, err := r.isRotated(); !rotated || err != nil {
			return err
		}
		if err := r.read(); err != nil {
			return err
		}
		if err := r.openNext(); err != nil {
			return err
		}
	}
}

func (r *Reader) path() string { return filepath.Join(r.dir, strconv.Itoa(r.n)+".log") }

// openFirst opens the log, if it exists, at the first wanted line, which may be in its older file.
func (r *Reader) openFirst() error {
	files, err := open(r.path())
	if err != nil || len(files) == 0 {
		return err
	}
	wanted, err := r.wanted(files)
	if err != nil {
		closeAll(files)
		return fmt.Errorf("read the log: %w", err)
	}
	r.use(wanted[0])
	closeAll(wanted[1:])
	return nil
}

// wanted returns the files from the first wanted line on.
func (r *Reader) wanted(files []*os.File) ([]*os.File, error) {
	j, err := join(files)
	if err != nil {
		return nil, err
	}
	at := int64(0)
	if r.lines >= 0 {
		if at, err = tailOffset(j, j.size, r.lines); err != nil {
			return nil, err
		}
		r.lines = -1
	}
	if r.there != nil {
		r.there.N = j.size - at
	}
	return j.from(at)
}

// use continues with another file.
func (r *Reader) use(f *os.File) {
	if r.f != nil {
		r.f.Close()
	}
	var from io.Reader = f
	if r.there != nil {
		r.there.R, from = f, r.there
	}
	r.f, r.r, r.part = f, bufio.NewReaderSize(from, maxLine), nil
	if info, err := f.Stat(); err == nil {
		r.at.Store(&info)
	}
}

// Unread reports whether a rotation of the log now would lose lines: it would delete an older file that the reader has
// not reached. Any goroutine may call it.
func (r *Reader) Unread(path string) bool {
	older, err := os.Stat(podlogs.Older(path))
	if err != nil || filepath.Dir(path) != r.dir {
		return false
	}
	at := r.at.Load()
	if at == nil || os.SameFile(*at, older) {
		return at == nil
	}
	now, err := os.Stat(path)
	return err != nil || !os.SameFile(*at, now)
}

// isRotated reports whether the log was rotated and its new file has content.
func (r *Reader) isRotated() (bool, error) {
	now, err := os.Stat(r.path())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the log: %w", err)
	}
	mine, err := r.f.Stat()
	if err != nil {
		return false, fmt.Errorf("read the log: %w", err)
	}
	return now.Size() > 0 && !os.SameFile(now, mine), nil
}

// openNext continues with the file after the current one. If the log was rotated more than once since, the files in
// between are lost.
func (r *Reader) openNext() error {
	files, err := open(r.path())
	if err != nil {
		return err
	}
	for i, f := range files {
		if sameFile(f, r.f) {
			f.Close()
			continue
		}
		r.use(f)
		closeAll(files[i+1:])
		return nil
	}
	return nil
}

// read passes on the complete lines of the current file. An attacker in the pod's shim may have written the file, so it
// may contain no lines.
func (r *Reader) read() error {
	for {
		line, err := r.r.ReadSlice('\n')
		r.part = append(r.part, line...)
		if errors.Is(err, io.EOF) && len(r.part) <= maxLine {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("read the log: %w", err)
		}
		if l, ok := parse(r.part); ok && !l.Time.Before(r.since) {
			if err := r.out(l); err != nil {
				return err
			}
		}
		r.part = r.part[:0]
	}
}
