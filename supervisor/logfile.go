package supervisor

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

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/sandbox/logs"
	"github.com/bulkhead-project/bulkhead/supervisor/api"
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
		if _, err := os.Stat(t.path()); t.n < 0 || errors.Is(err, os.ErrNotExist) {
			return class(api.ErrNotFound, fmt.Errorf("container %s of pod %s has no previous run whose output is kept", container, e.key()))
		}
	}
	if o.previous || !o.follow {
		return t.drain()
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	defer w.Close()
	if err := w.Add(dir); err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
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
		case <-w.Events:
		case err := <-w.Errors:
			return fmt.Errorf("watch %s: %w", dir, err)
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
	lines int64 // of the first file that is opened; less than 0: all
	f     *os.File
	r     *bufio.Reader
	part  []byte // of a line whose end is not written yet
}

func (t *tail) path() string { return filepath.Join(t.dir, strconv.Itoa(t.n)+".log") }

// open opens the file, if it is there, at the first line that is wanted of it.
func (t *tail) open() error {
	f, err := os.Open(t.path())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	if t.lines >= 0 {
		if err := seekTail(f, t.lines); err != nil {
			f.Close()
			return fmt.Errorf("read the log: %w", err)
		}
		t.lines = -1
	}
	t.f, t.r = f, bufio.NewReaderSize(f, maxLine)
	return nil
}

func seekTail(f *os.File, lines int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	at, err := logs.Tail(f, info.Size(), lines)
	if err != nil {
		return err
	}
	_, err = f.Seek(at, io.SeekStart)
	return err
}

// drain sends the whole lines that are there.
func (t *tail) drain() error {
	if t.f == nil {
		if err := t.open(); t.f == nil {
			return err
		}
	}
	for {
		line, err := t.r.ReadBytes('\n')
		t.part = append(t.part, line...)
		if errors.Is(err, io.EOF) && len(t.part) <= maxLine {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
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
