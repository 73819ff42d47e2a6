package stream_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// TestTokensExpire: an unused token expires after its patience, and its cleanup runs once.
func TestTokensExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stream.NewServer()
		var abandoned atomic.Int32
		for range stream.MaxTokens - 1 {
			if _, err := s.Issue(nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Prepare(nil, func() { abandoned.Add(1) }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(stream.Patience - time.Millisecond)
		synctest.Wait()
		if _, err := s.Issue(nil); !errors.Is(err, stream.ErrBusy) || abandoned.Load() != 0 {
			t.Errorf("within its patience: %v, abandoned %d times", err, abandoned.Load())
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		for range stream.MaxTokens {
			if _, err := s.Issue(nil); err != nil {
				t.Fatalf("after its patience: %v", err)
			}
		}
		s.Abandon()
		s.Close()
		time.Sleep(2 * stream.Patience)
		if abandoned.Load() != 1 {
			t.Errorf("abandoned %d times", abandoned.Load())
		}
	})
}

// TestAbandon: Abandon expires the tokens of Prepare at once, and not those of Issue.
func TestAbandon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stream.NewServer()
		defer s.Close()
		var abandoned atomic.Int32
		for range stream.MaxTokens / 2 {
			for _, err := range []error{
				func() error { _, err := s.Issue(nil); return err }(),
				func() error { _, err := s.Prepare(nil, func() { abandoned.Add(1) }); return err }(),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		s.Abandon()
		s.Abandon()
		if abandoned.Load() != stream.MaxTokens/2 {
			t.Errorf("%d were abandoned", abandoned.Load())
		}
		free := 0
		for ; free <= stream.MaxTokens; free++ {
			if _, err := s.Issue(nil); err != nil {
				break
			}
		}
		if free != stream.MaxTokens/2 {
			t.Errorf("%d tokens were left, not %d", stream.MaxTokens-free, stream.MaxTokens/2)
		}
	})
}

// TestConnectionsAreBounded: one client beyond the bound is refused, and one that leaves makes room.
func TestConnectionsAreBounded(t *testing.T) {
	s, address := serve(t)
	issue := func() string {
		token, err := s.Issue(func(context.Context) (func(context.Context, *net.UnixConn), error) {
			return func(_ context.Context, conn *net.UnixConn) { _, _ = io.Copy(io.Discard, conn) }, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	dial := func(token string) (net.Conn, error) { return stream.Dial(t.Context(), address, token) }
	var conns []net.Conn
	for range stream.MaxConns {
		conn, err := dial(issue())
		if err != nil {
			t.Fatalf("after %d connections: %v", len(conns), err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	late := issue() // a refusal does not use it up
	if conn, err := dial(late); err == nil {
		conn.Close()
		t.Errorf("more than %d connections", stream.MaxConns)
	}
	conns[0].Close()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		conn, err := dial(late)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a client that left makes no room: %v", err)
		}
	}
}
