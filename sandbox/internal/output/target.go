package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/progress"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/rawfile"
	"github.com/bulkhead-project/bulkhead/sandbox/logs"
)

// ErrNoReader is returned by Target.Write if the file accepts no more output, because its last reader is gone or it
// fails in another way.
var ErrNoReader = errors.New("output has no reader")

// Target passes one stream of a process on to a file of the host. NewTarget creates it. Its methods are safe for
// concurrent use, except that only one goroutine calls Write.
//
// Output waits while no file is connected. A file that another process reads too slowly blocks only Write, which ends
// with its context in any case.
type Target struct {
	mu      sync.Mutex
	offset  int64         // of the first byte that was not passed on
	known   bool          // offset is known: a file was connected
	discard bool          // drop all output
	writer  *writer       // of the connected file; nil without one
	last    *writer       // the latest writer, also after Disconnect
	changed chan struct{} // closed and replaced with writer
}

// NewTarget returns a target without a file.
func NewTarget() *Target { return &Target{changed: make(chan struct{})} }

// Connect passes the output on to f from now on, and stores how much was passed on in p. f may be nil, which discards
// the output. The first file of this shim continues where p says. The target uses f and p until done of Disconnect.
func (t *Target) Connect(f *rawfile.File, p *progress.Output) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known && p.Offset() != t.offset {
		if err := p.Reset(t.offset); err != nil {
			return fmt.Errorf("pass on the output: %w", err)
		}
	}
	t.offset, t.known = p.Offset(), true
	w := &writer{
		target: t, file: f, progress: p, pieces: make(chan piece), results: make(chan error, 1),
		gone: make(chan struct{}), done: make(chan struct{}),
	}
	t.last = w
	t.use(w)
	go w.run()
	return nil
}

// Disconnect is the inverse of Connect. The output waits for the next file. The caller then closes the file. done is
// closed after the file's last use, which may be in a system call that does not return.
func (t *Target) Disconnect() (done <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.writer
	if w == nil {
		ended := make(chan struct{})
		close(ended)
		return ended
	}
	close(w.gone)
	t.use(nil)
	return w.done
}

// use replaces the writer; the caller holds mu.
func (t *Target) use(w *writer) {
	t.writer = w
	close(t.changed)
	t.changed = make(chan struct{})
}

// Discard drops all output from now on.
func (t *Target) Discard() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.discard = true
}

// Busy reports whether a connected file has not taken all output that it was given.
func (t *Target) Busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.writer != nil && t.writer.busy
}

// Offset is the offset of the first byte that was not passed on.
func (t *Target) Offset() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.offset
}

// Write passes output on and returns the offset of its end. It skips output that was passed on before.
func (t *Target) Write(ctx context.Context, offset int64, data []byte) (int64, error) {
	end := offset + int64(len(data))
	for {
		t.mu.Lock()
		at, w, changed := t.offset, t.writer, t.changed
		if t.discard && at < end {
			t.offset, at = end, end
		}
		var failed error
		if w != nil {
			failed = w.failed
		}
		t.mu.Unlock()
		switch {
		case at >= end:
			return at, nil
		case at < offset:
			return at, fmt.Errorf("output at offset %d after %d: %w", offset, at, logs.ErrGap)
		case failed != nil:
			return at, failed
		case w != nil:
			if err := w.write(ctx, piece{offset, data}); err != nil && !errors.Is(err, rawfile.ErrInterrupted) {
				return t.Offset(), err
			}
		default:
			select {
			case <-changed:
			case <-ctx.Done():
				return at, context.Cause(ctx)
			}
		}
	}
}

// End returns the offset of the end: Write holds no output back.
func (t *Target) End(context.Context) (int64, error) { return t.Offset(), nil }

// advance notes how much w has passed on.
func (t *Target) advance(w *writer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last != w {
		return rawfile.ErrInterrupted // a later writer repeats these bytes
	}
	t.offset = w.progress.Offset()
	return nil
}

// note notes whether w is writing, and its error.
func (t *Target) note(w *writer, busy bool, failed error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.busy, w.failed = busy, failed
}

// piece is a part of the output.
type piece struct {
	offset int64
	data   []byte
}

// from returns the part of a piece from an offset on.
func (p piece) from(offset int64) []byte {
	return p.data[min(max(0, offset-p.offset), int64(len(p.data))):]
}

// writer writes to one file in a goroutine of its own, because a system call cannot be interrupted.
type writer struct {
	target   *Target
	file     *rawfile.File // nil discards
	progress *progress.Output
	plain    bool // the file does not support splice
	pieces   chan piece
	results  chan error
	gone     chan struct{} // closed by Disconnect
	done     chan struct{} // closed when it has ended

	busy   bool  // guarded by the target, like failed
	failed error // the error after which it writes no more
}

// write writes a piece. It returns early if the file is disconnected or ctx ends.
func (w *writer) write(ctx context.Context, p piece) error {
	p.data = bytes.Clone(p.data) // the caller uses its buffer again
	select {
	case w.pieces <- p:
	case <-w.gone:
		return rawfile.ErrInterrupted
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-w.results:
		return err
	case <-w.gone:
		return rawfile.ErrInterrupted
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *writer) run() {
	defer close(w.done)
	for {
		select {
		case p := <-w.pieces:
			w.target.note(w, true, nil)
			err := w.pass(p)
			w.target.note(w, false, err)
			w.results <- err
			if err != nil {
				return
			}
		case <-w.gone:
			return
		}
	}
}

// pass passes on the bytes that an earlier shim has left in the stage, and then the rest of a piece.
func (w *writer) pass(p piece) error {
	for {
		rest := p.from(w.progress.Offset())
		if w.progress.Staged() == 0 && len(rest) == 0 {
			return nil
		}
		err := w.step(rest)
		switch {
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
			if !w.pause() {
				return rawfile.ErrInterrupted
			}
		case errors.Is(err, rawfile.ErrInterrupted):
			return err
		case err != nil:
			return fmt.Errorf("%w: %w", ErrNoReader, err)
		}
		if err := w.target.advance(w); err != nil {
			return err
		}
	}
}

// step makes one system call that passes bytes on.
func (w *writer) step(rest []byte) error {
	if w.file == nil {
		staged := w.progress.Staged()
		return errors.Join(w.progress.Unstage(), w.progress.Advance(max(staged, len(rest))))
	}
	if w.plain {
		n, err := w.file.Write(rest)
		if n > 0 {
			err = errors.Join(err, w.progress.Advance(n))
		}
		return err
	}
	if w.progress.Staged() == 0 {
		if _, err := w.progress.Stage(rest); err != nil {
			return err
		}
	}
	most := w.progress.Staged()
	if w.file.MayBlock() {
		most = min(most, rawfile.Piece)
	}
	_, err := w.file.Do(func(fd int) (int, error) { return w.progress.Pass(fd, most) })
	if errors.Is(err, progress.ErrNoSplice) {
		w.plain = true
		return w.progress.Unstage()
	}
	return err
}

// pause waits for room on a disk, and returns false if the file was disconnected meanwhile.
func (w *writer) pause() bool {
	t := time.NewTimer(diskRetry)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.gone:
		return false
	}
}
