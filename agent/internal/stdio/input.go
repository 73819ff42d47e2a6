package stdio

import (
	"io"
	"sync"
	"time"
)

// Input is the stdin of a process. Its methods are safe for concurrent use.
type Input struct {
	eof func() error

	mu     sync.Mutex // held during writes
	w      io.WriteCloser
	state  sync.Mutex
	offset int64
	turn   int // number of the current writer
	closed bool
}

// NewInput feeds w. eof runs at the end of the input; nil closes w, which does not suffice for a terminal.
func NewInput(w io.WriteCloser, eof func() error) *Input {
	return &Input{w: w, eof: eof}
}

// Acquire makes the caller the only writer and interrupts an earlier writer's blocked Write. It returns the number of
// bytes passed to the process so far.
func (i *Input) Acquire() (turn int, offset int64) {
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

// Write passes bytes to the process and returns the total so far. It blocks while the process does not read.
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

// SendEOF sends end of file to the process.
func (i *Input) SendEOF(turn int) error {
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

// Close closes the input and unblocks writes.
func (i *Input) Close() error {
	i.state.Lock()
	i.closed = true
	i.state.Unlock()
	return i.w.Close()
}
