// Package logs reads what a container has written: files in the CRI's log format,
// DIR/N.log for the container's run N, with the older file that a log of more than
// its bound was begun anew from (podlogs.Older).
//
// k8s.io/cri-client/pkg/logs reads such files too, but not the older one: the lines
// before a rotation, and those written between its last read and the rename, are
// lost to it; it gives text where callers want stream and time; and it asks the
// runtime about the container, also when that is gone.
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

// Options choose what is read.
type Options struct {
	Run   int       // the container's run whose log is first
	Tail  int64     // so many lines of what is there at first; less than 0: all
	Since time.Time // nothing from before
	// There ends the reading where the log ended when it was opened.
	There bool
}

// Reader reads the logs of one container, one run after the other. It is used by
// one goroutine.
type Reader struct {
	dir   string
	out   func(Line) error
	since time.Time

	n     int
	lines int64             // of the first file that is opened; less than 0: all
	there *io.LimitedReader // reads what was there at first; nil reads on
	f     *os.File
	r     *bufio.Reader
	part  []byte // of a line whose end is not written yet

	at atomic.Pointer[os.FileInfo] // f's, or the last one's; nil before the first
}

// New prepares to read the logs in dir, giving each line to out. Its user calls
// Close.
func New(dir string, o Options, out func(Line) error) *Reader {
	r := &Reader{dir: dir, out: out, n: o.Run, lines: o.Tail, since: o.Since}
	if o.There {
		r.there = &io.LimitedReader{}
	}
	return r
}

// Run is the container's run whose log is being read.
func (r *Reader) Run() int { return r.n }

// Exists tells whether anything is there of the run's log.
func (r *Reader) Exists() bool {
	_, err := os.Stat(r.path())
	_, older := os.Stat(podlogs.Older(r.path()))
	return err == nil || older == nil
}

// Next goes on with the container's next run.
func (r *Reader) Next() {
	r.Close()
	r.n++
}

// Close closes the log that is being read.
func (r *Reader) Close() {
	if r.f != nil {
		r.f.Close()
	}
	r.f, r.part = nil, nil
}

// Drain gives the whole lines that are there and were not given yet. An error is
// out's, or that of a file that cannot be read; a file that is not there is empty.
func (r *Reader) Drain() error {
	if r.f == nil {
		if err := r.begin(); r.f == nil {
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
		// What is written to the log that was begun anew comes after all that
		// was written to the one before.
		if anew, err := r.anew(); !anew || err != nil {
			return err
		}
		if err := r.read(); err != nil {
			return err
		}
		if err := r.follow(); err != nil {
			return err
		}
	}
}

func (r *Reader) path() string { return filepath.Join(r.dir, strconv.Itoa(r.n)+".log") }

// begin opens the log, if it is there, at the first line that is wanted of it: in
// its older file, where it has one that reaches so far.
func (r *Reader) begin() error {
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

// wanted are the files from the first line that is wanted on.
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

// use goes on in another file.
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

// Unread tells whether lines would be missed if a log were begun anew now: the older file of that log would
// go, and the reader has not come to it. It may be called from any goroutine.
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

// anew tells whether something is written to a log that comes after this one.
func (r *Reader) anew() (bool, error) {
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

// follow goes on in the file after the one that was read. Of a log that was begun
// anew more than once since, what came in between is gone.
func (r *Reader) follow() error {
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

// read gives the whole lines that are there in the file. Who has taken over the
// pod's shim may have written it: it need not have lines.
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
