package agentv1_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// treeClient returns a client of an agent that serves op with handler.
func treeClient(t *testing.T, op agentv1.Op, handler agentv1.Handler) *agentv1.Client {
	t.Helper()
	return agentv1.NewClient(func(context.Context) (net.Conn, error) {
		host, guest := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = agentv1.Serve(t.Context(), guest, agentv1.Handlers{op: handler})
		}()
		t.Cleanup(func() { host.Close(); <-done })
		return host, nil
	})
}

func TestPack(t *testing.T) {
	client := treeClient(t, agentv1.OpPack, func(_ context.Context, s *agentv1.Stream) error {
		if err := s.Reply(nil); err != nil {
			return err
		}
		for _, e := range []agentv1.Entry{
			{Kind: agentv1.KindDir, Name: []byte("t")}, {Kind: agentv1.KindFile, Name: []byte("t/\xff"), Size: 5},
			{Kind: agentv1.KindFile, Name: []byte("t/passed over"), Size: 3},
			{Kind: agentv1.KindEnd, Error: &agentv1.Error{Message: "a disk\nis \x1b[31mbroken"}},
		} {
			if err := agentv1.WriteEntry(s.Conn, e); err != nil {
				return err
			}
			if _, err := io.WriteString(s.Conn, strings.Repeat("x", int(e.Size))); err != nil {
				return err
			}
		}
		return nil
	})
	tree, err := client.Pack(t.Context(), agentv1.Pack{Container: "c", Path: "/t"})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	for _, want := range []string{"t", "t/\xff", "t/passed over"} {
		e, err := tree.Next()
		if err != nil || string(e.Name) != want {
			t.Fatalf("%q, %v, want %q", e.Name, err, want)
		}
		if want == "t/\xff" {
			if content, err := io.ReadAll(tree); string(content) != "xxxxx" {
				t.Errorf("content %q, %v", content, err)
			}
		}
	}
	if _, err := tree.Next(); err == nil || !strings.Contains(err.Error(), "a disk is [31mbroken") {
		t.Errorf("the agent's reason: %v", err)
	}
}

// sent is a connection to an agent that has sent the content of r.
type sent struct {
	net.Conn
	r io.Reader
}

func (c sent) Read(p []byte) (int, error)  { return c.r.Read(p) }
func (c sent) Write(p []byte) (int, error) { return len(p), nil }
func (c sent) Close() error                { return nil }

// TestPackEnds checks that a complete tree ends with io.EOF, and a cut one with an error, for reads in pieces.
func TestPackEnds(t *testing.T) {
	for _, tc := range []struct {
		name, content string
		ends          bool // by an entry
		read, next    error
	}{
		{name: "whole", content: "abcde", ends: true, next: io.EOF},
		{name: "cut behind a file", content: "abcde", next: io.ErrUnexpectedEOF},
		{name: "cut in a file", content: "abc", read: io.ErrUnexpectedEOF, next: io.ErrUnexpectedEOF},
		{name: "cut before a file", read: io.ErrUnexpectedEOF, next: io.ErrUnexpectedEOF},
	} {
		var wire bytes.Buffer
		file := agentv1.Entry{Kind: agentv1.KindFile, Size: 5, Error: &agentv1.Error{Message: "of no end"}}
		err := errors.Join(agentv1.WriteFrame(&wire, agentv1.Reply{}, agentv1.MaxReply), agentv1.WriteEntry(&wire, file))
		wire.WriteString(tc.content)
		if tc.ends {
			err = errors.Join(err, agentv1.WriteEntry(&wire, agentv1.Entry{Kind: agentv1.KindEnd}))
		}
		if err != nil {
			t.Fatal(err)
		}
		client := agentv1.NewClient(func(context.Context) (net.Conn, error) {
			return sent{r: iotest.DataErrReader(&wire)}, nil // the last bytes come together with the end
		})
		tree, err := client.Pack(t.Context(), agentv1.Pack{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tree.Next(); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if got, err := io.ReadAll(iotest.HalfReader(tree)); string(got) != tc.content || !errors.Is(err, tc.read) {
			t.Errorf("%s: read %q, %v, want %v", tc.name, got, err, tc.read)
		}
		if _, err := tree.Next(); !errors.Is(err, tc.next) {
			t.Errorf("%s: at the end %v, want %v", tc.name, err, tc.next)
		}
	}
}

// TestPackHostile checks entries that no real agent sends.
func TestPackHostile(t *testing.T) {
	for name, raw := range map[string]string{
		"a size below nothing": `{"kind":"file","name":"YQ==","size":-1}`,
		"a directory's size":   `{"kind":"dir","name":"YQ==","size":5}`,
		"no JSON":              `{`,
		"too long a name":      fmt.Sprintf(`{"kind":"dir","name":%q}`, strings.Repeat("YWFh", agentv1.MaxName/3+2)),
		"a frame too long":     strings.Repeat(" ", 33<<10),
	} {
		client := treeClient(t, agentv1.OpPack, func(_ context.Context, s *agentv1.Stream) error {
			if err := s.Reply(nil); err != nil {
				return err
			}
			frame := append([]byte{0, 0, byte(len(raw) >> 8), byte(len(raw))}, raw...)
			_, err := s.Write(frame)
			return err
		})
		tree, err := client.Pack(t.Context(), agentv1.Pack{})
		if err != nil {
			t.Fatal(err)
		}
		if e, err := tree.Next(); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
		tree.Close()
	}
	cut := treeClient(t, agentv1.OpPack, func(_ context.Context, s *agentv1.Stream) error {
		if err := s.Reply(nil); err != nil {
			return err
		}
		return agentv1.WriteEntry(s.Conn, agentv1.Entry{Kind: agentv1.KindFile, Name: []byte("a"), Size: 1 << 60})
	})
	tree, err := cut.Pack(t.Context(), agentv1.Pack{})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if _, err := tree.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(tree); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file that was cut: %v", err)
	}
}

func TestUnpack(t *testing.T) {
	var got bytes.Buffer
	client := treeClient(t, agentv1.OpUnpack, func(_ context.Context, s *agentv1.Stream) error {
		if err := s.Reply(nil); err != nil {
			return err
		}
		for {
			e, err := agentv1.ReadEntry(s.Conn)
			if err != nil {
				return err
			}
			if e.Kind == agentv1.KindEnd {
				return agentv1.WriteFrame(s.Conn, agentv1.Reply{}, agentv1.MaxReply)
			}
			fmt.Fprintf(&got, "%s %s ", e.Kind, e.Name)
			if _, err := io.CopyN(&got, s.Conn, e.Size); err != nil {
				return err
			}
		}
	})
	tree, err := client.Unpack(t.Context(), agentv1.Unpack{Container: "c", Path: "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	err = errors.Join(tree.Add(agentv1.Entry{Kind: agentv1.KindDir, Name: []byte("t")}, nil),
		tree.Add(agentv1.Entry{Kind: agentv1.KindFile, Name: []byte("t/a"), Size: 3}, strings.NewReader("abc")), tree.End())
	if err != nil || got.String() != "dir t file t/a abc" {
		t.Errorf("%v, %q", err, got.String())
	}
}

// TestUnpackIsAnsweredEarly checks an agent's answer that ends the stream before the write that it answers has
// returned.
func TestUnpackIsAnsweredEarly(t *testing.T) {
	for name, refusal := range map[string]*agentv1.Error{"well": nil, "ill": agentv1.ToError(errors.New("no space left"))} {
		handler := func(_ context.Context, s *agentv1.Stream) error {
			if err := s.Reply(nil); err != nil {
				return err
			}
			if _, err := agentv1.ReadEntry(s.Conn); err != nil {
				return err
			}
			return agentv1.WriteFrame(s.Conn, agentv1.Reply{Error: refusal}, agentv1.MaxReply)
		}
		host, guest := net.Pipe()
		go func() { _ = agentv1.Serve(t.Context(), guest, agentv1.Handlers{agentv1.OpUnpack: handler}) }()
		conn := &lateConn{Conn: host, closed: make(chan struct{})}
		client := agentv1.NewClient(func(context.Context) (net.Conn, error) { return conn, nil })
		tree, err := client.Unpack(t.Context(), agentv1.Unpack{Container: "c", Path: "/"})
		if err != nil {
			t.Fatal(err)
		}
		conn.late.Store(true)
		err = tree.End()
		if refusal == nil && err != nil || refusal != nil && (err == nil || !strings.Contains(err.Error(), "no space left")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// lateConn's late writes return when it is closed, although they were completed.
type lateConn struct {
	net.Conn
	late   atomic.Bool
	once   sync.Once
	closed chan struct{}
}

func (c *lateConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil || !c.late.Load() {
		return n, err
	}
	<-c.closed
	return 0, net.ErrClosed
}

func (c *lateConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestUnpackFails checks that the error is the agent's if it accepts no more data, and otherwise the source's.
func TestUnpackFails(t *testing.T) {
	full := treeClient(t, agentv1.OpUnpack, func(_ context.Context, s *agentv1.Stream) error {
		if err := s.Reply(nil); err != nil {
			return err
		}
		if _, err := agentv1.ReadEntry(s.Conn); err != nil {
			return err
		}
		return agentv1.WriteFrame(s.Conn, agentv1.Reply{Error: agentv1.ToError(errors.New("no space left"))}, agentv1.MaxReply)
	})
	tree, err := full.Unpack(t.Context(), agentv1.Unpack{})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	err = tree.Add(agentv1.Entry{Kind: agentv1.KindFile, Name: []byte("a"), Size: 1 << 30}, zeros{})
	if err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("a full disk: %v", err)
	}
	short := treeClient(t, agentv1.OpUnpack, func(_ context.Context, s *agentv1.Stream) error {
		if err := s.Reply(nil); err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, s.Conn)
		return nil
	})
	tree2, err := short.Unpack(t.Context(), agentv1.Unpack{})
	if err != nil {
		t.Fatal(err)
	}
	err = tree2.Add(agentv1.Entry{Kind: agentv1.KindFile, Name: []byte("a"), Size: 9}, strings.NewReader("short"))
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a source that ends early: %v", err)
	}
	tree2.Close()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
