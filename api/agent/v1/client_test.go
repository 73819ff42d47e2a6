package agentv1_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// connect returns a client with streams served by serve.
func connect(t *testing.T, serve func(net.Conn)) *agentv1.Client {
	t.Helper()
	return agentv1.NewClient(func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close(); far.Close() })
		go serve(far)
		return near, nil
	})
}

func agent(t *testing.T, h agentv1.Handlers) *agentv1.Client {
	t.Helper()
	return connect(t, func(c net.Conn) { agentv1.Serve(context.Background(), c, h) })
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestCalls(t *testing.T) {
	t.Parallel()
	c := agent(t, agentv1.Handlers{
		agentv1.OpStart: agentv1.Unary(func(_ context.Context, p agentv1.Process) (struct{}, error) {
			if p.Container == "c" {
				return struct{}{}, nil
			}
			return struct{}{}, fmt.Errorf("container %s: %w\nsecond\x1b[31m line", p.Container, errdefs.ErrNotFound)
		}),
		agentv1.OpStats: agentv1.Unary(func(context.Context, agentv1.Process) (agentv1.Stats, error) {
			return agentv1.Stats{Pids: 7}, nil
		}),
		agentv1.OpReadFile: agentv1.Unary(func(context.Context, agentv1.ReadFile) (agentv1.File, error) {
			return agentv1.File{Data: make([]byte, agentv1.MaxReply)}, nil
		}),
	})
	ctx := within(t, 5*time.Second)
	if err := c.Start(ctx, agentv1.Process{Container: "c"}); err != nil {
		t.Error(err)
	}
	err := c.Start(ctx, agentv1.Process{Container: "d"})
	if !errors.Is(err, errdefs.ErrNotFound) || strings.ContainsAny(err.Error(), "\n\x1b") || !strings.Contains(err.Error(), "container d") {
		t.Errorf("error: %q", err)
	}
	if s, err := c.Stats(ctx, agentv1.Process{}); err != nil || s.Pids != 7 {
		t.Errorf("stats: %+v, %v", s, err)
	}
	if _, err := c.Ping(ctx); !errors.Is(err, errdefs.ErrNotImplemented) {
		t.Errorf("unknown call: %v", err)
	}
	if _, err := c.ReadFile(ctx, agentv1.ReadFile{}); err == nil {
		t.Error("an answer beyond the limit")
	}
	if _, err := c.Create(ctx, agentv1.Create{Container: strings.Repeat("x", agentv1.MaxCall)}); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("a call beyond the limit: %v", err)
	}
}

// TestHostileReplies checks that all invalid answers of a guest cause an error soon.
func TestHostileReplies(t *testing.T) {
	t.Parallel()
	length := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	frame := func(text string) []byte { return append(length(uint32(len(text))), text...) }
	digits := strings.Repeat("7", agentv1.MaxReply/2)
	for name, reply := range map[string][]byte{
		"nothing":    nil,
		"cut length": {0, 0},
		"huge":       length(1<<32 - 1),
		"too long":   length(agentv1.MaxReply + 1),
		"cut off":    append(length(agentv1.MaxReply), "{}"...),
		"not JSON":   append(length(4), "null{"...),
		"no body":    append(length(2), "{}"...),
		"other body": append(length(13), `{"body":"abc"`...),
		"deep":       append(length(200000), bytes.Repeat([]byte("["), 200000)...),
		"a number":   frame(`{"body":{"cpuUsec":` + digits + `}}`),
		"a time":     frame(`{"body":{"at":"` + digits + `"}}`),
		"a class":    frame(`{"error":{"class":` + digits + `}}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, func(c net.Conn) {
				var call agentv1.Call
				agentv1.ReadFrame(c, &call, agentv1.MaxCall)
				c.Write(reply)
				c.Close()
			})
			if s, err := c.Stats(within(t, 5*time.Second), agentv1.Process{}); err == nil {
				t.Errorf("answer %+v", s)
			} else if len(err.Error()) > 1024 {
				t.Errorf("an error of %d bytes: %.80s", len(err.Error()), err.Error())
			}
		})
	}
}

// TestCancel checks that every call ends with its context.
func TestCancel(t *testing.T) {
	t.Parallel()
	c := agent(t, agentv1.Handlers{
		agentv1.OpWait: agentv1.Waiting(func(ctx context.Context, _ agentv1.Process) (agentv1.Exit, error) {
			<-ctx.Done() // when the host closes the stream
			return agentv1.Exit{}, ctx.Err()
		}),
		agentv1.OpOutput: func(_ context.Context, s *agentv1.Stream) error {
			s.Reply(agentv1.Offset{})
			io.Copy(io.Discard, s)
			return nil
		},
	})
	if _, err := c.Wait(within(t, 50*time.Millisecond), agentv1.Process{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	out, err := c.Output(ctx, agentv1.Output{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, _, err := out.Next(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("output: %v", err)
	}
	deaf := connect(t, func(net.Conn) {})
	if _, err := deaf.Ping(within(t, 50*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ping: %v", err)
	}
}

func TestForward(t *testing.T) {
	t.Parallel()
	c := agent(t, agentv1.Handlers{agentv1.OpForward: func(_ context.Context, s *agentv1.Stream) error {
		s.Reply(nil)
		conn := agentv1.NewChunkConn(s.Conn)
		all, err := io.ReadAll(conn) // to the end of the host's half
		if err != nil {
			return err
		}
		fmt.Fprintf(conn, "%d", len(all))
		return conn.CloseWrite()
	}})
	conn, err := c.Forward(within(t, 5*time.Second), 80)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(make([]byte, 100000)); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*agentv1.ChunkConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "100000" {
		t.Errorf("answer %q, %v", got, err)
	}
}

// TestJoinHangsUp checks that Join ends when the host closes its connection completely, even if the server stays
// silent, but not after a half close.
func TestJoinHangsUp(t *testing.T) {
	t.Parallel()
	server, far := net.Pipe()
	defer far.Close()
	ended := make(chan struct{})
	c := agent(t, agentv1.Handlers{agentv1.OpForward: func(_ context.Context, s *agentv1.Stream) error {
		defer close(ended)
		s.Reply(nil)
		agentv1.Join(agentv1.NewChunkConn(s.Conn), halfDeaf{server})
		return nil
	}})
	conn, err := c.Forward(within(t, 5*time.Second), 80)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.(*agentv1.ChunkConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
		t.Error("the end of one direction ended both")
	case <-time.After(100 * time.Millisecond):
	}
	conn.Close()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("a host that is gone leaves its connection behind")
	}
}

// halfDeaf is a server that ignores a half close.
type halfDeaf struct{ net.Conn }

func (halfDeaf) CloseWrite() error { return nil }

// TestForwardRefused checks that a refused connection differs from other errors.
func TestForwardRefused(t *testing.T) {
	t.Parallel()
	c := agent(t, agentv1.Handlers{agentv1.OpForward: func(_ context.Context, s *agentv1.Stream) error {
		var r agentv1.Forward
		if err := json.Unmarshal(s.Body, &r); err != nil {
			return err
		}
		if r.Port == 1 {
			return fmt.Errorf("connect to port 1: %w", syscall.ECONNREFUSED)
		}
		return fmt.Errorf("connect to port %d: %w", r.Port, syscall.ETIMEDOUT)
	}})
	if _, err := c.Forward(within(t, 5*time.Second), 1); !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "port 1") {
		t.Errorf("a closed port: %v", err)
	}
	if _, err := c.Forward(within(t, 5*time.Second), 2); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a port that does not answer: %v", err)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(_ *testing.T, b []byte) {
		var reply agentv1.Reply
		agentv1.ReadFrame(bytes.NewReader(b), &reply, 1000)
		agentv1.ReadChunk(bytes.NewReader(b), make([]byte, agentv1.MaxChunk))
	})
}
