package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/shim/stream"
)

func serve(t *testing.T) (*stream.Server, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "st")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	address := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	s := stream.NewServer()
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, address
}

func open(t *testing.T, run func(ctx context.Context, conn *net.UnixConn)) net.Conn {
	t.Helper()
	s, address := serve(t)
	token, err := s.Issue(func(context.Context) (func(context.Context, *net.UnixConn), error) { return run, nil })
	if err != nil {
		t.Fatal(err)
	}
	conn, err := stream.Dial(t.Context(), address, token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestTokenIsUsedOnce(t *testing.T) {
	s, address := serve(t)
	token, err := s.Issue(func(context.Context) (func(context.Context, *net.UnixConn), error) {
		return func(_ context.Context, conn *net.UnixConn) { io.WriteString(conn, "hello") }, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := stream.Dial(t.Context(), address, token)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if b, err := io.ReadAll(conn); err != nil || string(b) != "hello" {
		t.Errorf("read %q, %v", b, err)
	}
	for token, want := range map[string]error{
		token: stream.ErrRefused, "": stream.ErrProtocol, "guess": stream.ErrProtocol,
		strings.Repeat("a", 4096): stream.ErrProtocol, strings.Repeat("x", len(token)): stream.ErrProtocol,
	} {
		if _, err := stream.Dial(t.Context(), address, token); !errors.Is(err, want) {
			t.Errorf("token %.40q: %v", token, err)
		}
	}
}

// TestDrain lets a stream end by itself, refuses new ones, and does not exceed its deadline.
func TestDrain(t *testing.T) {
	s, address := serve(t)
	release := make(chan struct{})
	issue := func() string {
		token, err := s.Issue(func(context.Context) (func(context.Context, *net.UnixConn), error) {
			return func(_ context.Context, conn *net.UnixConn) {
				<-release
				io.WriteString(conn, "the end")
			}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	conn, err := stream.Dial(t.Context(), address, issue())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	unused := issue()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Drain(ctx) // returns although the stream runs
	if late, err := stream.Dial(t.Context(), address, unused); err == nil {
		late.Close()
		t.Error("a client was accepted")
	}
	close(release)
	s.Drain(t.Context())
	if b, err := io.ReadAll(conn); err != nil || string(b) != "the end" {
		t.Errorf("read %q, %v", b, err)
	}
}

func TestHandlerErrorReachesTheClient(t *testing.T) {
	s, address := serve(t)
	for _, tc := range []struct {
		err    error
		nobody bool
	}{
		{errors.New("no\nroute"), false},
		{fmt.Errorf("no\nroute: %w", syscall.ECONNREFUSED), true},
		{fmt.Errorf("no\nroute: %w", syscall.ETIMEDOUT), false},
	} {
		token, err := s.Issue(func(context.Context) (func(context.Context, *net.UnixConn), error) {
			return nil, tc.err
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Dial(t.Context(), address, token)
		if !errors.Is(err, stream.ErrRefused) || !strings.Contains(err.Error(), "stream refused: no route") {
			t.Errorf("got %v", err)
		}
		if errors.Is(err, syscall.ECONNREFUSED) != tc.nobody {
			t.Errorf("%v: reported as refused: %v", err, !tc.nobody)
		}
	}
}

// TestRefusalsAreBounded: the client receives the first part of a long refusal, and reads no longer line.
func TestRefusalsAreBounded(t *testing.T) {
	s, address := serve(t)
	token, err := s.Issue(func(context.Context) (func(context.Context, *net.UnixConn), error) {
		return nil, errors.New(strings.Repeat("x", 5000))
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Dial(t.Context(), address, token); !errors.Is(err, stream.ErrRefused) || strings.Count(err.Error(), "x") != 1023 {
		t.Errorf("got %v", err)
	}
	other := filepath.Join(filepath.Dir(address), "other")
	l, err := net.Listen("unix", other)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			io.WriteString(conn, strings.Repeat("x", 1024)+"\n")
			io.Copy(io.Discard, conn)
			conn.Close()
		}
	}()
	if _, err := stream.Dial(t.Context(), other, token); !errors.Is(err, stream.ErrProtocol) {
		t.Errorf("got %v", err)
	}
}

// TestServeEndsWithItsListener: closing the listener ends Serve, like Close.
func TestServeEndsWithItsListener(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	s := stream.NewServer()
	defer s.Close()
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	l.Close()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("Serve does not end")
	}
}

func TestTokensAreBounded(t *testing.T) {
	s, _ := serve(t)
	for range stream.MaxTokens {
		if _, err := s.Issue(nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Issue(nil); !errors.Is(err, stream.ErrBusy) {
		t.Errorf("one too many: %v", err)
	}
}

// TestStdio carries stdin with its end, both outputs, a size and the exit code.
func TestStdio(t *testing.T) {
	sizes := make(chan stream.Size, 2)
	sizes <- stream.Size{Width: 80, Height: 24}
	sizes <- stream.Size{Width: 81, Height: 24}
	conn := open(t, func(_ context.Context, conn *net.UnixConn) {
		r, w := stream.NewReader(conn), stream.NewWriter(conn)
		var in bytes.Buffer
		var size stream.Size
		for ended := false; !ended || size.Width != 81; {
			ch, p, err := r.Next()
			if err != nil {
				t.Errorf("read a frame: %v", err)
				return
			}
			switch {
			case ch == stream.Resize:
				size, _ = stream.DecodeSize(p)
			case len(p) == 0:
				ended = true
			default:
				in.Write(p)
			}
		}
		io.Copy(w.Channel(stream.Stdout), &in)
		io.WriteString(w.Channel(stream.Stderr), "oops")
		w.Frame(stream.Exited, stream.EncodeExit(42))
	})
	input := strings.Repeat("0123456789abcdef", 20000)
	var out, errOut bytes.Buffer
	code, err := stream.Stdio{Stdin: strings.NewReader(input), Stdout: &out, Stderr: &errOut, Resize: sizes}.Run(t.Context(), conn)
	if err != nil || code != 42 {
		t.Errorf("code %d, %v", code, err)
	}
	if out.String() != input || errOut.String() != "oops" {
		t.Errorf("%d bytes of stdout, stderr %q", out.Len(), errOut.String())
	}
}

func TestStdioEnds(t *testing.T) {
	t.Run("shim gone", func(t *testing.T) {
		conn := open(t, func(context.Context, *net.UnixConn) {})
		if _, err := (stream.Stdio{}).Run(t.Context(), conn); !errors.Is(err, stream.ErrDetached) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		conn := open(t, func(ctx context.Context, _ *net.UnixConn) { <-ctx.Done() })
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := (stream.Stdio{}).Run(ctx, conn); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no output wanted", func(t *testing.T) {
		conn := open(t, func(_ context.Context, conn *net.UnixConn) {
			w := stream.NewWriter(conn)
			w.Frame(stream.Stdout, []byte("out"))
			w.Frame(stream.Stderr, []byte("err"))
			w.Frame(stream.Exited, stream.EncodeExit(7))
		})
		if code, err := (stream.Stdio{}).Run(t.Context(), conn); code != 7 || err != nil {
			t.Errorf("code %d, %v", code, err)
		}
	})
	t.Run("failed", func(t *testing.T) {
		conn := open(t, func(_ context.Context, conn *net.UnixConn) {
			stream.NewWriter(conn).Frame(stream.Failed, []byte("no such container"))
		})
		if _, err := (stream.Stdio{}).Run(t.Context(), conn); err == nil || err.Error() != "no such container" {
			t.Errorf("got %v", err)
		}
	})
}

// TestBackPressure: a client that does not read stops the writer.
func TestBackPressure(t *testing.T) {
	wrote := make(chan int, 1)
	conn := open(t, func(_ context.Context, conn *net.UnixConn) {
		conn.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		n, _ := stream.NewWriter(conn).Channel(stream.Stdout).Write(make([]byte, 64<<20))
		wrote <- n
	})
	defer conn.Close()
	if n := <-wrote; n > 8<<20 {
		t.Errorf("%d bytes went to a client that reads nothing", n)
	}
}

func TestReaderRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"huge length": "\x01\xff\xff\xff\xff",
		"cut header":  "\x01\x00",
		"no payload":  "\x01\x00\x00\x00\x05",
		"cut payload": "\x01\x00\x00\x00\x05abc",
	} {
		if _, _, err := stream.NewReader(strings.NewReader(in)).Next(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := stream.NewWriter(io.Discard).Frame(stream.Stdin, make([]byte, stream.MaxFrame+1)); !errors.Is(err, stream.ErrProtocol) {
		t.Errorf("a frame too long: %v", err)
	}
}

// TestSplice keeps half closes: the answer comes after the question's end.
func TestSplice(t *testing.T) {
	guestNear, guest := tcpPair(t)
	conn := open(t, func(ctx context.Context, conn *net.UnixConn) { stream.Splice(ctx, conn, guestNear) })
	go func() {
		b, _ := io.ReadAll(guest)
		guest.Write(bytes.ToUpper(b))
		guest.Close()
	}()
	if _, err := io.WriteString(conn, "question"); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); err != nil || string(b) != "QUESTION" {
		t.Errorf("read %q, %v", b, err)
	}
}

// TestSpliceHangsUp: a client's full close ends the splice even if the other side never sends anything; a half close
// does not.
func TestSpliceHangsUp(t *testing.T) {
	guestNear, guest := tcpPair(t)
	ended := make(chan struct{})
	conn := open(t, func(ctx context.Context, conn *net.UnixConn) {
		stream.Splice(ctx, conn, guestNear)
		close(ended)
	})
	if _, err := io.WriteString(conn, "last words"); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(guest); err != nil || string(b) != "last words" {
		t.Errorf("read %q, %v", b, err)
	}
	select {
	case <-ended:
		t.Error("the end of one direction ended both")
	case <-time.After(100 * time.Millisecond):
	}
	conn.Close()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the stream of a closed client does not end")
	}
}

// TestSpliceBreaksOff: a connection that breaks in the pod also breaks outside, and does not look like a regular end.
func TestSpliceBreaksOff(t *testing.T) {
	near, client := tcpPair(t)
	guest, far := net.Pipe()
	defer far.Close()
	stream.Splice(t.Context(), near, broken{guest})
	if _, err := io.ReadAll(client); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v", err)
	}
}

// broken is a connection that ended abnormally.
type broken struct{ net.Conn }

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func tcpPair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}
