package agentv1_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// TestOutput checks reading a process's output from an offset, and its acknowledgement.
func TestOutput(t *testing.T) {
	t.Parallel()
	acked := make(chan int64, 1)
	c := agent(t, agentv1.Handlers{agentv1.OpOutput: func(_ context.Context, s *agentv1.Stream) error {
		if err := s.Reply(agentv1.Offset{Offset: 10}); err != nil {
			return err
		}
		err := errors.Join(agentv1.WriteChunk(s, []byte("abc")), agentv1.WriteChunk(s, []byte("de")), agentv1.WriteChunk(s, nil))
		at, err2 := agentv1.ReadAck(s)
		acked <- at
		return errors.Join(err, err2)
	}})
	for _, from := range []int64{9, 10} {
		out, err := c.Output(within(t, 5*time.Second), agentv1.Output{Offset: from})
		if err != nil {
			t.Fatal(err)
		}
		if at, data, err := out.Next(); err != nil || at != 10 || string(data) != "abc" {
			t.Errorf("%q at %d, %v", data, at, err)
		}
		if at, data, err := out.Next(); err != nil || at != 13 || string(data) != "de" || out.Offset() != 15 {
			t.Errorf("%q at %d, then %d: %v", data, at, out.Offset(), err)
		}
		if at, _, err := out.Next(); !errors.Is(err, io.EOF) || at != 15 {
			t.Errorf("the end is at %d: %v", at, err)
		}
		if err := out.Ack(15); err != nil || <-acked != 15 {
			t.Errorf("ack: %v", err)
		}
		out.Close()
	}
	if _, err := c.Output(within(t, 5*time.Second), agentv1.Output{Offset: 11}); err == nil || !strings.Contains(err.Error(), "before") {
		t.Errorf("output that was acknowledged comes again: %v", err)
	}
}

// TestInput checks that Offset counts the delivered bytes and never falls, and that the stream is done when the
// agent ends it.
func TestInput(t *testing.T) {
	t.Parallel()
	seen, repeated := make(chan struct{}), make(chan struct{}, 1)
	c := agent(t, agentv1.Handlers{agentv1.OpInput: func(_ context.Context, s *agentv1.Stream) error {
		if err := s.Reply(agentv1.Offset{Offset: 10}); err != nil {
			return err
		}
		buf := make([]byte, agentv1.MaxChunk)
		if data, err := agentv1.ReadChunk(s, buf); err != nil || string(data) != "abc" {
			return err
		}
		if err := agentv1.WriteAck(s, 13); err != nil {
			return err
		}
		<-seen
		if err := errors.Join(agentv1.WriteAck(s, 13), agentv1.WriteAck(s, 4)); err != nil {
			return err
		}
		repeated <- struct{}{} // the first one was handled before the second was read
		if _, err := agentv1.ReadChunk(s, buf); !errors.Is(err, io.EOF) {
			return err
		}
		return agentv1.WriteAck(s, 14)
	}})
	in, err := c.Input(within(t, 5*time.Second), agentv1.Input{})
	if err != nil {
		t.Fatal(err)
	}
	if in.Offset() != 10 {
		t.Errorf("it begins at %d", in.Offset())
	}
	for _, data := range []string{"", "abc"} { // empty data does not end the stream
		if n, err := in.Write([]byte(data)); err != nil || n != len(data) {
			t.Errorf("write %q: %d, %v", data, n, err)
		}
	}
	await(t, in.Moved())
	close(seen)
	await(t, repeated)
	select {
	case <-in.Moved():
		t.Error("a known offset is reported as a new one")
	default:
	}
	if in.Offset() != 13 {
		t.Errorf("3 bytes arrived and it is at %d", in.Offset())
	}
	if err := in.CloseInput(); err != nil {
		t.Error(err)
	}
	await(t, in.Done())
	select {
	case <-in.Moved():
	default:
		t.Error("no notification for the last bytes")
	}
	if in.Offset() != 14 {
		t.Errorf("it ends at %d", in.Offset())
	}
	if _, err := in.Write([]byte("x")); err == nil {
		t.Error("a finished stream accepts more data")
	}
	in.Close()
}

func await(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(5 * time.Second):
		t.Fatal("timeout")
	}
}
