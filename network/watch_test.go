package network

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestWatchGoesOn: a watcher with a failed socket opens another one as soon as it can, and then refreshes for the
// changes that it has missed. It ends when it is stopped.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	writers := make(chan *os.File, 2)
	opened, refreshed := 0, make(chan struct{}, 8)
	w := &watcher{
		retry: time.Millisecond,
		open: func() (*os.File, error) {
			if opened++; opened == 2 {
				return nil, errors.New("no sockets just now")
			}
			r, w, err := os.Pipe()
			writers <- w
			return r, err
		},
		refresh: func(context.Context) error {
			refreshed <- struct{}{}
			return nil
		},
	}
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	wait := func(what string) {
		t.Helper()
		select {
		case <-refreshed:
		case <-ctx.Done():
			t.Fatalf("no refresh %s", what)
		}
	}
	change := func(f *os.File) {
		t.Helper()
		if _, err := f.WriteString("change"); err != nil {
			t.Fatal(err)
		}
	}
	first := <-writers
	change(first)
	wait("at a change")
	first.Close() // the read fails
	wait("for the missed changes")
	second := <-writers
	defer second.Close()
	change(second)
	wait("at a change of later")
	w.stop()
	if opened != 3 || len(refreshed) != 0 {
		t.Errorf("%d sockets, %d refreshes too many", opened, len(refreshed))
	}
}

// TestWatchEnds: a watcher that waits to open a socket ends when it is stopped.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	r, far, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w := &watcher{retry: time.Hour, open: func() (*os.File, error) { return r, nil }}
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	far.Close()
	w.stop()
	if err := r.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("its socket is still open: %v", err)
	}
}
