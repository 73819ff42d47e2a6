package stream_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// TestOnHangup: a full close is noticed even if unread bytes remain; a half close does not count.
func TestOnHangup(t *testing.T) {
	gone, stopped := make(chan struct{}), make(chan error, 1)
	conn := open(t, func(ctx context.Context, conn *net.UnixConn) {
		stop, err := stream.OnHangup(conn, func() { close(gone) })
		if err == nil {
			defer stop()
			_, err = conn.Write([]byte("watched"))
		}
		stopped <- err
		select {
		case <-gone:
		case <-ctx.Done():
		}
	})
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len("watched"))); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-gone:
		t.Fatal("called after the end of its writing")
	case <-time.After(50 * time.Millisecond):
	}
	conn.Close()
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Error("not called after the close")
	}
}

// TestHangupStops: a stopped watch calls no function and ends.
func TestHangupStops(t *testing.T) {
	over := make(chan bool, 1)
	conn := open(t, func(_ context.Context, conn *net.UnixConn) {
		called := false
		stop, err := stream.OnHangup(conn, func() { called = true })
		if err != nil {
			t.Error(err)
		} else {
			stop()
		}
		over <- called
	})
	if <-over {
		t.Error("called without a hang-up")
	}
	conn.Close()
}
