package stdio

import (
	"io"
	"sync"
	"time"
)

// Input is the stdin of a process. Its methods may be called at once.
type Input struct {
	eof func() error

	mu     sync.Mutex // of writes
	w      io.WriteCloser
	state  sync.Mutex
	offset int64
	turn   int // counts the writers
	closed bool
}

// NewInput feeds w. At the end of the input eof is called: nil closes w, which
// is not enough for a terminal.
func NewInput(w io.WriteCloser, eof func() error) *Input {
	return &Input{w: w, eof: eof}
}

// Take makes the caller the writer in place of any before it, whose Write is
// broken off if it waits, and tells how many bytes the process has been given.
func (i *Input) Take() (turn int, offset int64) {
	i.state.Lock()
	i.turn++
	turn = i.turn
	i.state.Unlock()
	deadline, ok := i.w.(interface{ SetWriteDeadline(time.Time) error })
	if ok {
		_ = deadline.SetWriteDeadline(time.Unix(1, 0))
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if ok {
		_ = deadline.SetWriteDeadline(time.Time{})
	}
	i.state.Lock()
	defer i.state.Unlock()
	return turn, i.offset
}

// Write gives bytes to the process and returns how many it has had then. It
// blocks while the process does not read.
func (i *Input) Write(turn int, p []byte) (int64, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.state.Lock()
	stale, closed := turn != i.turn, i.closed
	i.state.Unlock()
	if stale {
		return 0, ErrReplaced
	}
	if closed {
		return 0, io.ErrClosedPipe
	}
	n, err := i.w.Write(p)
	i.state.Lock()
	defer i.state.Unlock()
	i.offset += int64(n)
	if turn != i.turn {
		return 0, ErrReplaced
	}
	return i.offset, err
}

// End makes the process read end of file.
func (i *Input) End(turn int) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.state.Lock()
	defer i.state.Unlock()
	if turn != i.turn {
		return ErrReplaced
	}
	if i.closed {
		return nil
	}
	i.closed = true
	if i.eof != nil {
		return i.eof()
	}
	return i.w.Close()
}

// Close ends writes that wait.
func (i *Input) Close() error {
	i.state.Lock()
	i.closed = true
	i.state.Unlock()
	return i.w.Close()
}
