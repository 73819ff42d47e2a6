package fdpass_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/shim/fdpass"
)

// pair returns two connected unix sockets.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "fd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err = net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	if b, err = l.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func file(t *testing.T, content string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func send(t *testing.T, s *fdpass.Store, name string, f *os.File) error {
	t.Helper()
	a, b := pair(t)
	done := make(chan error, 1)
	go func() { done <- s.Receive(b) }()
	err := fdpass.SendNamed(t.Context(), a, name, f)
	<-done
	return err
}

func TestSendAndTake(t *testing.T) {
	var s fdpass.Store
	defer s.Close()
	if err := send(t, &s, "disk", file(t, "old")); err != nil {
		t.Fatal(err)
	}
	if err := send(t, &s, "disk", file(t, "content")); err != nil {
		t.Fatal(err)
	}
	f, err := s.Remove("disk")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != "content" {
		t.Errorf("read %q, %v", b, err)
	}
	if _, err := s.Remove("disk"); !errors.Is(err, fdpass.ErrNoFile) {
		t.Errorf("taken twice: %v", err)
	}
}

func TestStoreIsBounded(t *testing.T) {
	var s fdpass.Store
	for i := range fdpass.MaxStored {
		if err := send(t, &s, fmt.Sprint(i), file(t, "")); err != nil {
			t.Fatal(err)
		}
	}
	err := send(t, &s, "one more", file(t, ""))
	if err == nil || !strings.Contains(err.Error(), "too many sent files") {
		t.Errorf("one too many: %v", err)
	}
	s.Close()
	if err := send(t, &s, "late", file(t, "")); err == nil {
		t.Error("a closed store took a file")
	}
}

func TestReceiveRefuses(t *testing.T) {
	var s fdpass.Store
	defer s.Close()
	f := file(t, "x")
	for name, write := range map[string]func(*net.UnixConn) error{
		"two files": func(c *net.UnixConn) error { return fdpass.Send(c, []byte("name"), f, f) },
		"nothing":   func(c *net.UnixConn) error { return c.CloseWrite() },
	} {
		a, b := pair(t)
		if err := write(a); err != nil {
			t.Fatal(err)
		}
		if err := s.Receive(b); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestDrop: sending nil closes the unused file of that name.
func TestDrop(t *testing.T) {
	var s fdpass.Store
	defer s.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, f := range []*os.File{w, nil, nil} {
		a, b := pair(t)
		served := make(chan error, 1)
		go func() { served <- s.Receive(b) }()
		if err := errors.Join(fdpass.SendNamed(t.Context(), a, "name", f), <-served); err != nil {
			t.Fatal(err)
		}
		if f == w {
			w.Close()
		}
	}
	if _, err := s.Remove("name"); !errors.Is(err, fdpass.ErrNoFile) {
		t.Errorf("taken after it was dropped: %v", err)
	}
	if err := r.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("it is still open: %v", err)
	}
}

func TestSendNamedEndsWithItsContext(t *testing.T) {
	a, _ := pair(t) // the other end never answers
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := fdpass.SendNamed(ctx, a, "x", file(t, "")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
