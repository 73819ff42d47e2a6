package flock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestExcludes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Try(path); !errors.Is(err, ErrLocked) {
		t.Errorf("a second holder: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = Acquire(ctx, path)
	if !errors.Is(err, ErrLocked) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("at the deadline: %v", err)
	}
	if err := held.Unlock(); err != nil {
		t.Fatal(err)
	}
	again, err := Try(path)
	if err != nil {
		t.Fatalf("after the unlock: %v", err)
	}
	if err := again.Unlock(); err != nil {
		t.Error(err)
	}
}

func TestWaitsForTheHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { _ = held.Unlock() })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	l, err := Acquire(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}

func TestNeedsADeadline(t *testing.T) {
	if _, err := Acquire(context.Background(), filepath.Join(t.TempDir(), "lock")); err == nil {
		t.Error("waited without a deadline")
	}
}

// A lock on a file that was removed excludes no other process: the next caller creates a new file.
func TestRemovedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	old, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Unlock()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	if !same(l.File(), path) {
		t.Error("the lock is not on the file of that name")
	}
}

// TestUnlockWhileForked has another descriptor of the lock, like a child between fork and exec. It holds nothing after
// the unlock.
func TestUnlockWhileForked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := unix.Dup(int(held.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	if err := held.Unlock(); err != nil {
		t.Fatal(err)
	}
	again, err := Try(path)
	if err != nil {
		t.Fatalf("after the unlock: %v", err)
	}
	if err := again.Unlock(); err != nil {
		t.Error(err)
	}
}
