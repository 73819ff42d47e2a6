package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const greeting = `{"QMP": {"version": {}, "capabilities": ["oob"]}}` + "\r\n"

// pair connects a client to a server that serve plays. The connection ends when serve returns.
func pair(t *testing.T, serve func(net.Conn)) *net.UnixConn {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		serve(conn)
	}()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); l.Close(); <-done })
	return conn.(*net.UnixConn)
}

// next reads a command as a server.
func next(r *bufio.Reader) (req struct {
	Execute string
	ID      uint64
}, err error) {
	line, err := r.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &req)
	}
	return req, err
}

// server greets, negotiates, and goes on with rest.
func server(rest func(conn net.Conn, r *bufio.Reader)) func(net.Conn) {
	return func(conn net.Conn) {
		r := bufio.NewReader(conn)
		io.WriteString(conn, greeting)
		req, err := next(r)
		if err != nil {
			return
		}
		fmt.Fprintf(conn, `{"return": {}, "id": %d}`+"\n", req.ID)
		rest(conn, r)
	}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func client(t *testing.T, rest func(conn net.Conn, r *bufio.Reader)) *Client {
	t.Helper()
	c, err := New(within(t), pair(t, server(rest)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestHostileGreeting(t *testing.T) {
	for name, bytes := range map[string]string{
		"garbage":   "\x00\xff\xfe garbage\n",
		"event":     `{"event": "SHUTDOWN", "data": {}}` + "\n",
		"nothing":   "",
		"array":     "[1,2,3]\n",
		"cut":       `{"QMP": {`,
		"two kinds": `{"QMP": {}, "return": {}}` + "\n",
		"endless":   strings.Repeat("x", MaxMessage+2),
		"deep":      strings.Repeat("[", 20000) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(within(t), pair(t, func(conn net.Conn) { io.WriteString(conn, bytes) }))
			if err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("New: %v", err)
			}
		})
	}
}

func TestSilentGreeting(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := New(ctx, pair(t, func(conn net.Conn) { conn.Read(make([]byte, 1)) }))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("New: %v", err)
	}
}

func TestHostileReplies(t *testing.T) {
	for _, c := range []struct {
		name, bytes string
		want        error
	}{
		{"garbage", "garbage\n", ErrProtocol},
		{"an unsolicited reply", `{"return": {}, "id": 99}` + "\n", ErrProtocol},
		{"a reply without id", `{"return": {}}` + "\n", ErrProtocol},
		{"a negative id", `{"return": {}, "id": -1}` + "\n", ErrProtocol},
		{"an endless line", strings.Repeat("y", MaxMessage+2), ErrProtocol},
		{"a second greeting", greeting, ErrProtocol},
		{"a wrong type", `{"return": [], "id": 2}` + "\n", ErrProtocol},
		{"the end", "", ErrClosed},
		{"the end in the middle", `{"return"`, ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := client(t, func(conn net.Conn, r *bufio.Reader) {
				next(r)
				io.WriteString(conn, c.bytes)
			})
			var result struct{ A int }
			if err := cl.Execute(within(t), "query", nil, &result); !errors.Is(err, c.want) {
				t.Errorf("Execute: %v, want %v", err, c.want)
			}
		})
	}
}

func TestRepliesOutOfOrder(t *testing.T) {
	const n = 8
	cl := client(t, func(conn net.Conn, r *bufio.Reader) {
		ids := map[string]uint64{}
		for range n {
			req, err := next(r)
			if err != nil {
				return
			}
			ids[req.Execute] = req.ID
		}
		for name, id := range ids { // in random order, with noise between
			fmt.Fprintf(conn, `{"event": "NOISE"}`+"\n"+`{"return": %q, "id": %d}`+"\n", name, id)
		}
		next(r)
	})
	results := make(chan error, n)
	for i := range n {
		go func() {
			want := fmt.Sprint("command", i)
			var got string
			err := cl.Execute(within(t), want, nil, &got)
			if err == nil && got != want {
				err = fmt.Errorf("%s got %s", want, got)
			}
			results <- err
		}()
	}
	for range n {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

func TestRefusal(t *testing.T) {
	cl := client(t, func(conn net.Conn, r *bufio.Reader) {
		req, _ := next(r)
		fmt.Fprintf(conn, `{"error": {"class": "GenericError", "desc": "no such thing"}, "id": %d}`+"\n", req.ID)
		next(r)
	})
	var refused *CommandError
	if err := cl.Execute(within(t), "device_del", nil, nil); !errors.As(err, &refused) || refused.Desc != "no such thing" {
		t.Errorf("Execute: %v", err)
	}
}

func TestAbandonedCommand(t *testing.T) {
	release := make(chan struct{})
	cl := client(t, func(conn net.Conn, r *bufio.Reader) {
		first, _ := next(r)
		<-release
		fmt.Fprintf(conn, `{"return": {}, "id": %d}`+"\n", first.ID)
		second, _ := next(r)
		fmt.Fprintf(conn, `{"return": {}, "id": %d}`+"\n", second.ID)
		next(r)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := cl.Execute(ctx, "slow", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Execute: %v", err)
	}
	close(release)
	if err := cl.Execute(within(t), "next", nil, nil); err != nil {
		t.Errorf("after an abandoned command: %v", err)
	}
}

func TestEventFlood(t *testing.T) {
	const n = maxQueued * 10
	cl := client(t, func(conn net.Conn, r *bufio.Reader) {
		next(r)
		for i := range n {
			fmt.Fprintf(conn, `{"event": "TICK", "data": %d}`+"\n", i)
		}
	})
	sub := cl.Subscribe("TICK")
	defer sub.Cancel()
	cl.Execute(within(t), "go", nil, nil)
	<-cl.Done()
	var last string
	count := 0
	for {
		e, err := sub.Next(within(t))
		if err != nil {
			if !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
			break
		}
		last = string(e.Data)
		count++
	}
	if count > maxQueued || last != fmt.Sprint(n-1) {
		t.Errorf("%d events, the last %s", count, last)
	}
}

func TestTooManyCommands(t *testing.T) {
	cl := client(t, func(conn net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) })
	for range maxInFlight {
		if _, _, err := cl.register(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cl.Execute(within(t), "one more", nil, nil); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Execute: %v", err)
	}
}

func TestFilePassed(t *testing.T) {
	got := make(chan string, 1)
	conn := pair(t, func(conn net.Conn) {
		defer close(got)
		io.WriteString(conn, greeting)
		oob, buf := make([]byte, 64), make([]byte, 4096)
		for i := range 2 {
			_, oobn, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(buf, oob)
			if err != nil {
				return
			}
			if oobn > 0 {
				messages, _ := unix.ParseSocketControlMessage(oob[:oobn])
				fds, _ := unix.ParseUnixRights(&messages[0])
				f := os.NewFile(uintptr(fds[0]), "received")
				b, _ := io.ReadAll(f)
				f.Close()
				got <- string(b)
			}
			fmt.Fprintf(conn, `{"return": {}, "id": %d}`+"\n", i+1)
		}
	})
	c, err := New(within(t), conn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	path := filepath.Join(t.TempDir(), "f")
	os.WriteFile(path, []byte("content"), 0o600)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := c.ExecuteFile(within(t), "getfd", map[string]string{"fdname": "x"}, nil, f); err != nil {
		t.Fatal(err)
	}
	if content := <-got; content != "content" {
		t.Errorf("the server read %q", content)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(greeting))
	f.Add([]byte(`{"return": {}, "id": 1}`))
	f.Add([]byte(`{"event": "X", "data": {"a": [1]}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if _, err := decode(line); err != nil && !errors.Is(err, ErrProtocol) {
			t.Errorf("decode: %v", err)
		}
	})
}
