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
	"github.com/bulkhead-project/bulkhead/supervisor/api"
)

// maxLine bounds a line of a log: the writer splits at 16 KiB.
const maxLine = 64 << 10

// containerOutput sends a container's log files, one for each time that it was
// started, in order. With follow it goes on until the pod has ended; without, it
// sends the newest only, as kubectl does.
func (e *entry) containerOutput(ctx context.Context, container string, follow bool, out send) error {
	dir := filepath.Join(e.dir, "logs", container)
	if err := dirs.Ensure(dir, 0o700); err != nil {
		return err
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	defer w.Close()
	if err := w.Add(dir); err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	t := &tail{dir: dir, pod: e.rec.Pod.Name, container: container, out: out}
	defer t.close()
	if !follow {
		t.n = restarts(e.status(), container)
	}
	for {
		// Looked at before the file is read: what was written before a
		// container's end is in the file then.
		_, changed := e.pod().Watch()
		over := !follow || e.hasEnded()
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
	for _, c := range status.ContainerStatuses {
		if c.Name == container {
			return int(c.RestartCount)
		}
	}
	return 0
}

// tail reads one log file after the other.
type tail struct {
	dir, pod, container string
	out                 send

	n    int
	f    *os.File
	r    *bufio.Reader
	part []byte // of a line whose end is not written yet
}

// drain sends the whole lines that are there.
func (t *tail) drain() error {
	if t.f == nil {
		f, err := os.Open(filepath.Join(t.dir, strconv.Itoa(t.n)+".log"))
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		t.f, t.r = f, bufio.NewReaderSize(f, maxLine)
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
		if l, ok := parseLine(t.part); ok {
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
