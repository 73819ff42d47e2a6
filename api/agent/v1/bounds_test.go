package agentv1_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// TestChunks checks that data of any length arrives unchanged in chunks of at most MaxChunk, and that an empty
// chunk ends the stream.
func TestChunks(t *testing.T) {
	for _, tc := range []struct{ bytes, chunks int }{
		{0, 1}, {1, 1}, {agentv1.MaxChunk - 1, 1}, {agentv1.MaxChunk, 1}, {agentv1.MaxChunk + 1, 2}, {2 * agentv1.MaxChunk, 2},
	} {
		data := bytes.Repeat([]byte("x"), tc.bytes)
		var wire bytes.Buffer
		if err := agentv1.WriteChunk(&wire, data); err != nil || wire.Len() != tc.bytes+4*tc.chunks {
			t.Errorf("%d bytes became %d in %d chunks: %v", tc.bytes, wire.Len(), tc.chunks, err)
		}
		want := io.ErrUnexpectedEOF // without the empty chunk the stream was cut
		if tc.bytes == 0 {
			want = io.EOF
		}
		var got []byte
		buf := make([]byte, agentv1.MaxChunk)
		chunk, err := agentv1.ReadChunk(&wire, buf)
		for ; err == nil; chunk, err = agentv1.ReadChunk(&wire, buf) {
			got = append(got, chunk...)
		}
		if !bytes.Equal(got, data) || !errors.Is(err, want) {
			t.Errorf("of %d bytes %d came back: %v, want %v", tc.bytes, len(got), err, want)
		}
	}
	long := binary.BigEndian.AppendUint32(nil, agentv1.MaxChunk+1)
	long = append(long, make([]byte, agentv1.MaxChunk+1)...)
	if _, err := agentv1.ReadChunk(bytes.NewReader(long), nil); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("a chunk over the limit: %v", err)
	}
	cut := []byte{0, 0, 0, 5, 'c', 'u', 't'}
	if _, err := agentv1.ReadChunk(bytes.NewReader(cut), make([]byte, agentv1.MaxChunk)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a chunk that was cut off: %v", err)
	}
	closed, w := io.Pipe()
	closed.Close()
	if err := agentv1.WriteChunk(w, []byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("without a receiver: %v", err)
	}
}

// TestFrameLimit checks that a frame of exactly the limit passes both ways, and that one more byte fails.
func TestFrameLimit(t *testing.T) {
	const limit = 70 << 10 // more than one growth of a buffer
	for _, tc := range []struct {
		bytes   int
		allowed bool
	}{{2, true}, {limit - 1, true}, {limit, true}, {limit + 1, false}} {
		text := strings.Repeat("x", tc.bytes-2) // JSON adds its quotes
		var wire bytes.Buffer
		if err := agentv1.WriteFrame(&wire, text, limit); tc.allowed != (err == nil) || !tc.allowed && !errors.Is(err,
			errdefs.ErrInvalidArgument) {
			t.Errorf("write %d bytes: %v", tc.bytes, err)
		}
		frame := binary.BigEndian.AppendUint32(nil, uint32(tc.bytes))
		frame = fmt.Appendf(frame, "%q", text)
		if tc.allowed && !bytes.Equal(frame, wire.Bytes()) {
			t.Errorf("%d bytes are written as %d", tc.bytes, wire.Len())
		}
		var got string
		err := agentv1.ReadFrame(bytes.NewReader(frame), &got, limit)
		if tc.allowed && (err != nil || got != text) || !tc.allowed && !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("read %d bytes: %d, %v", tc.bytes, len(got), err)
		}
	}
	for cut, want := range map[string]error{
		"": io.EOF, "\x00\x00": io.ErrUnexpectedEOF, "\x00\x00\x00\x02": io.ErrUnexpectedEOF, "\x00\x00\x00\x02{": io.ErrUnexpectedEOF,
	} {
		var v any
		if err := agentv1.ReadFrame(strings.NewReader(cut), &v, limit); !errors.Is(err, want) {
			t.Errorf("a stream that ends after %q: %v, want %v", cut, err, want)
		}
	}
	if err := agentv1.WriteFrame(io.Discard, func() {}, limit); err == nil {
		t.Error("a function is written as JSON")
	}
}

// TestErrorsArePrintable checks that an agent's message becomes one line of at most 1 KiB without control
// characters.
func TestErrorsArePrintable(t *testing.T) {
	for raw, want := range map[string]string{
		"a b~":              "a b~",
		"a\nb\tc\rd":        "a b c d",
		"a\x00\x1b[1m\x1fb": "a[1mb",
		"a\x7fb":            "ab",
		"a\u0080\u009fb":    "ab",
		"a\u00a0ü":          "a\u00a0ü",
	} {
		if got := agentv1.ToError(errors.New(raw)).Error(); got != want {
			t.Errorf("%q became %q, want %q", raw, got, want)
		}
	}
	if got := agentv1.ToError(errors.New(strings.Repeat("x", 2000))).Error(); len(got) != 1024 {
		t.Errorf("a message of %d bytes", len(got))
	}
	if agentv1.ToError(nil) != nil {
		t.Error("nil became an error")
	}
}

// TestAnswersOfHandlers checks that the answers and errors of all kinds of handlers reach the caller.
func TestAnswersOfHandlers(t *testing.T) {
	t.Parallel()
	ping := func(context.Context, struct{}) (agentv1.Pong, error) { return agentv1.Pong{Uptime: 7}, nil }
	fail := func(context.Context, struct{}) (agentv1.Pong, error) { return agentv1.Pong{}, agentv1.ErrBusy }
	long := func(context.Context, struct{}) (string, error) { return strings.Repeat("x", agentv1.MaxReply), nil }
	for name, tc := range map[string]struct {
		handler agentv1.Handler
		class   error
	}{
		"unary over the limit": {agentv1.Unary(long), errdefs.ErrInvalidArgument}, "waiting over the limit": {agentv1.Waiting(long),
			errdefs.ErrInvalidArgument},
		"unary": {agentv1.Unary(ping), nil}, "waiting": {agentv1.Waiting(ping), nil},
		"unary that fails": {agentv1.Unary(fail), agentv1.ErrBusy}, "waiting that fails": {agentv1.Waiting(fail), agentv1.ErrBusy},
	} {
		c := agent(t, agentv1.Handlers{agentv1.OpPing: tc.handler})
		pong, err := c.Ping(within(t, 5*time.Second))
		if !errors.Is(err, tc.class) || tc.class == nil && pong.Uptime != 7 {
			t.Errorf("%s: %+v, %v", name, pong, err)
		}
	}
}

// TestForwardOneWay checks that each end of a forwarded port sees the half close of the other, again at each read.
func TestForwardOneWay(t *testing.T) {
	t.Parallel()
	server, far := net.Pipe() // it has no CloseWrite
	c := agent(t, agentv1.Handlers{agentv1.OpForward: func(_ context.Context, s *agentv1.Stream) error {
		if err := s.Reply(nil); err != nil {
			return err
		}
		agentv1.Join(agentv1.NewChunkConn(s.Conn), server)
		return nil
	}})
	conn, err := c.Forward(within(t, 5*time.Second), 80)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.(*agentv1.ChunkConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	go func() {
		io.WriteString(far, "answer")
		far.Close()
	}()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "answer" {
		t.Errorf("%q, %v", got, err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %d, %v", n, err)
	}
	conn.Close()
	if n, err := conn.Write([]byte("x")); n != 0 || err == nil {
		t.Errorf("without a receiver: %d, %v", n, err)
	}
}

// TestTreeBase checks the names in a copy.
func TestTreeBase(t *testing.T) {
	for name, want := range map[string]string{
		"a": "a", "/a/b": "b", "/a/b/": "b", "/a/b/.": ".", "/": ".", "//": ".", "/a/..": ".", ".": ".", "..": ".", "/a/.b": ".b",
	} {
		if got := agentv1.TreeBase(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// TestEntryBounds checks the limits of names and targets, and that only a file has a size.
func TestEntryBounds(t *testing.T) {
	most, more := bytes.Repeat([]byte("n"), agentv1.MaxName), bytes.Repeat([]byte("n"), agentv1.MaxName+1)
	for name, tc := range map[string]struct {
		entry   agentv1.Entry
		allowed bool
	}{
		"the longest names": {agentv1.Entry{Kind: agentv1.KindSymlink, Name: most, Target: most}, true},
		"a longer name":     {agentv1.Entry{Kind: agentv1.KindSymlink, Name: more}, false},
		"a longer target":   {agentv1.Entry{Kind: agentv1.KindSymlink, Target: more}, false},
		"an empty file":     {agentv1.Entry{Kind: agentv1.KindFile}, true},
		"a file":            {agentv1.Entry{Kind: agentv1.KindFile, Size: 1}, true},
		"a negative size":   {agentv1.Entry{Kind: agentv1.KindFile, Size: -1}, false},
		"a link's size":     {agentv1.Entry{Kind: agentv1.KindSymlink, Size: 1}, false},
	} {
		var wire bytes.Buffer
		if err := agentv1.WriteEntry(&wire, tc.entry); err != nil {
			t.Fatal(err)
		}
		if e, err := agentv1.ReadEntry(&wire); tc.allowed != (err == nil) || !tc.allowed && !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %.80v, %v", name, e, err)
		}
	}
}
