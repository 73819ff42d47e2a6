// Package flock locks files across processes. The kernel drops a lock with its last descriptor, so a killed holder
// leaves no lock behind.
package flock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked is returned when another holder kept the lock until the deadline.
var ErrLocked = errors.New("locked by another process")

// retry is the interval of tries for a lock: flock(2) can either wait forever or not at all, and has no event.
const retry = 2 * time.Millisecond

// Lock is a held lock. It is released by Unlock, once.
type Lock struct{ f *os.File }

// Acquire locks path, which is created with mode 0600 if it is missing, and
// waits for it until ctx ends. A context without a deadline is refused.
func Acquire(ctx context.Context, path string) (*Lock, error) {
	if _, ok := ctx.Deadline(); !ok {
		return nil, fmt.Errorf("lock %s: no deadline given", path)
	}
	for {
		l, err := Try(path)
		if !errors.Is(err, ErrLocked) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		case <-time.After(retry):
		}
	}
}

// Try locks path if it is free, and returns ErrLocked if it is not.
func Try(path string) (*Lock, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				err = ErrLocked
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// The file may have been removed between open and flock. A lock on a nameless file does not exclude other
		// processes.
		if same(f, path) {
			return &Lock{f}, nil
		}
		f.Close()
	}
}

func same(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// File returns the locked file, for a holder that stores data in it.
func (l *Lock) File() *os.File { return l.f }

// Unlock releases the lock explicitly: a child that another goroutine is forking has the descriptor, and so the lock,
// until its program runs.
func (l *Lock) Unlock() error {
	return errors.Join(unix.Flock(int(l.f.Fd()), unix.LOCK_UN), l.f.Close())
}
