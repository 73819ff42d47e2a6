package run

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	podlogs "github.com/bulkhead-project/bulkhead/pod/logs"
	"github.com/bulkhead-project/bulkhead/sandbox/logs"
)

// maxLine bounds a line of a log: the writer splits at 16 KiB.
const maxLine = 64 << 10

// outputOptions choose what of a container's output is sent.
type outputOptions struct {
	follow   bool      // until the pod has ended
	whole    bool      // from the container's first run on, else the newest only
	previous bool      // the run before the newest
	tail     int64     // so many lines of what is there; less than 0: all
	since    time.Time // nothing from before
}

// everything is what a foreground run shows.
var everything = outputOptions{follow: true, whole: true, tail: -1}

// containerOutput sends a container's log files, one for each time that it was
// started, in order.
func (e *entry) containerOutput(ctx context.Context, container string, o outputOptions, out send) error {
	dir := filepath.Join(e.dir, "logs", container)
	if err := dirs.Ensure(dir, 0o700); err != nil {
		return err
	}
	t := &tail{dir: dir, pod: e.rec.Pod.Name, container: container, out: out, lines: o.tail, since: o.since}
	defer t.close()
	if !o.whole {
		t.n = restarts(e.status(), container)
	}
	if o.previous {
		t.n--
		if t.n < 0 || !t.exists() {
			return class(api.ErrNotFound, fmt.Errorf("container %s of pod %s has no previous run whose output is kept", container, e.key()))
		}
	}
	if o.previous || !o.follow {
		t.there = &io.LimitedReader{}
		return t.drain()
	}
	written, stop, err := e.r.logs.Add(e.r.ctx, dir)
	if err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	defer stop()
	for {
		// Looked at before the file is read: what was written before a
		// container's end is in the file then.
		_, changed := e.pod().Watch()
		over := e.hasEnded()
		status := e.status()
		if err := t.drain(); err != nil {
			return err
		}
		if restarts(status, container) > t.n {
			t.next()
			continue
		}
		if over {
			return nil
		}
		select {
		case <-written:
		case <-changed:
		case <-e.ended():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func restarts(status corev1.PodStatus, container string) int {
	return int(statusOfContainer(status, container).RestartCount)
}

// tail reads one log file after the other.
type tail struct {
	dir, pod, container string
	out                 send
	since               time.Time // nothing from before is sent

	n     int
	lines int64             // of the first file that is opened; less than 0: all
	there *io.LimitedReader // reads what was there at first; nil reads on
	f     *os.File
	r     *bufio.Reader
	part  []byte // of a line whose end is not written yet
}

func (t *tail) path() string { return filepath.Join(t.dir, strconv.Itoa(t.n)+".log") }

// exists says whether anything is there of the log.
func (t *tail) exists() bool {
	_, err := os.Stat(t.path())
	_, older := os.Stat(podlogs.Older(t.path()))
	return err == nil || older == nil
}

// open opens the log, if it is there, at the first line that is wanted of it: in
// its older file, where it has one that reaches so far.
func (t *tail) open() error {
	files, err := t.files()
	if err != nil || len(files) == 0 {
		return err
	}
	wanted, err := t.wanted(files)
	if err != nil {
		closeAll(files)
		return fmt.Errorf("read the log: %w", err)
	}
	t.take(wanted[0])
	closeAll(wanted[1:])
	return nil
}

// wanted are the files from the first line that is wanted on.
func (t *tail) wanted(files []*os.File) ([]*os.File, error) {
	j, err := join(files)
	if err != nil {
		return nil, err
	}
	at := int64(0)
	if t.lines >= 0 {
		if at, err = logs.Tail(j, j.size, t.lines); err != nil {
			return nil, err
		}
		t.lines = -1
	}
	if t.there != nil {
		t.there.N = j.size - at
	}
	return j.from(at)
}

// files opens the older log and the log, as far as they are there.
func (t *tail) files() (files []*os.File, err error) {
	for _, path := range []string{podlogs.Older(t.path()), t.path()} {
		f, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("read the log: %w", err)
		}
		files = append(files, f)
	}
	if len(files) == 2 && sameFile(files[0], files[1]) { // renamed in between
		files[1].Close()
		files = files[:1]
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func sameFile(a, b *os.File) bool {
	x, err := a.Stat()
	if err != nil {
		return false
	}
	y, err := b.Stat()
	return err == nil && os.SameFile(x, y)
}

// take goes on in another file.
func (t *tail) take(f *os.File) {
	if t.f != nil {
		t.f.Close()
	}
	var r io.Reader = f
	if t.there != nil {
		t.there.R, r = f, t.there
	}
	t.f, t.r, t.part = f, bufio.NewReaderSize(r, maxLine), nil
}

// joined reads files as one, as long as they were at first.
type joined struct {
	files []*os.File
	sizes []int64
	size  int64
}

func join(files []*os.File) (joined, error) {
	j := joined{files: files}
	for _, f := range files {
		info, err := f.Stat()
		if err != nil {
			return joined{}, err
		}
		j.sizes = append(j.sizes, info.Size())
		j.size += info.Size()
	}
	return j, nil
}

// from returns the files from an offset on, at which the first of them then is,
// and closes those before.
func (j joined) from(at int64) ([]*os.File, error) {
	files, sizes := j.files, j.sizes
	for len(files) > 1 && at >= sizes[0] {
		at -= sizes[0]
		files[0].Close()
		files, sizes = files[1:], sizes[1:]
	}
	_, err := files[0].Seek(at, io.SeekStart)
	return files, err
}

// ReadAt implements io.ReaderAt.
func (j joined) ReadAt(p []byte, at int64) (n int, err error) {
	for i, f := range j.files {
		if at >= j.sizes[i] {
			at -= j.sizes[i]
			continue
		}
		piece := p[n:min(int64(len(p)), int64(n)+j.sizes[i]-at)]
		read, err := f.ReadAt(piece, at)
		if n += read; read < len(piece) {
			return n, err
		}
		at = 0
	}
	if n < len(p) {
		err = io.EOF
	}
	return n, err
}

// drain sends the whole lines that are there.
func (t *tail) drain() error {
	if t.f == nil {
		if err := t.open(); t.f == nil {
			return err
		}
	}
	for {
		if err := t.read(); err != nil {
			return err
		}
		if t.there != nil && t.there.N <= 0 {
			return nil
		}
		// What is written to the log that was begun anew comes after all that
		// was written to the one before.
		if anew, err := t.anew(); !anew || err != nil {
			return err
		}
		if err := t.read(); err != nil {
			return err
		}
		if err := t.follow(); err != nil {
			return err
		}
	}
}

// anew says whether something is written to a log that comes after this one.
func (t *tail) anew() (bool, error) {
	now, err := os.Stat(t.path())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the log: %w", err)
	}
	mine, err := t.f.Stat()
	if err != nil {
		return false, fmt.Errorf("read the log: %w", err)
	}
	return now.Size() > 0 && !os.SameFile(now, mine), nil
}

// follow goes on in the file after the one that was read. Of a log that was begun
// anew more than once since, what came in between is gone.
func (t *tail) follow() error {
	files, err := t.files()
	if err != nil {
		return err
	}
	for i, f := range files {
		if sameFile(f, t.f) {
			f.Close()
			continue
		}
		t.take(f)
		closeAll(files[i+1:])
		return nil
	}
	return nil
}

// read sends the whole lines that are there in the file. The file may be another's
// who has taken over the pod's shim: it need not have lines.
func (t *tail) read() error {
	for {
		line, err := t.r.ReadSlice('\n')
		t.part = append(t.part, line...)
		if errors.Is(err, io.EOF) && len(t.part) <= maxLine {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("read the log: %w", err)
		}
		if l, ok := parseLine(t.part); ok && !l.Time.Before(t.since) {
			l.Pod, l.Container = t.pod, t.container
			if err := t.out(api.Message{Log: &l}); err != nil {
				return err
			}
		}
		t.part = t.part[:0]
	}
}

func (t *tail) next() {
	t.close()
	t.n++
}

func (t *tail) close() {
	if t.f != nil {
		t.f.Close()
	}
	t.f, t.part = nil, nil
}

// parseLine reads a line of the CRI's log format: time, stream, P (partial) or
// F (full), text. What is no such line is not shown.
func parseLine(line []byte) (api.Log, bool) {
	parts := bytes.SplitN(line, []byte{' '}, 4)
	if len(parts) != 4 {
		return api.Log{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(parts[0]))
	if err != nil {
		return api.Log{}, false
	}
	text := bytes.TrimSuffix(parts[3], []byte{'\n'})
	if !bytes.HasPrefix(parts[2], []byte{'P'}) {
		text = append(bytes.Clone(text), '\n')
	}
	return api.Log{Stream: string(parts[1]), Time: at, Data: bytes.Clone(text)}, true
}
