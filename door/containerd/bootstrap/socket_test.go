package bootstrap

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestSocketPath(t *testing.T) {
	inv := Invocation{Namespace: "n", ID: "c", Address: "/run/containerd/containerd.sock"}
	path := func(dir string, change func(*Invocation), group string) string {
		i := inv
		if change != nil {
			change(&i)
		}
		got, err := SocketPath(dir, i, group)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	same := path("", nil, "g")
	if filepath.Dir(same) != DefaultSocketDir {
		t.Errorf("got %s, want a path in %s", same, DefaultSocketDir)
	}
	if got := path("", func(i *Invocation) { i.ID = "d" }, "g"); got != same {
		t.Errorf("another container of the group: got %s, want %s", got, same)
	}
	if got := path("", func(i *Invocation) { i.Socket = "/s" }, "g"); got != "/s" {
		t.Errorf("a given socket: got %s", got)
	}
	for name, got := range map[string]string{
		"another directory":  path("/x", nil, "g"),
		"another namespace":  path("", func(i *Invocation) { i.Namespace = "m" }, "g"),
		"another containerd": path("", func(i *Invocation) { i.Address = "/a" }, "g"),
		"another group":      path("", nil, "h"),
	} {
		if got == same {
			t.Errorf("%s: got the same path", name)
		}
	}
	if got, err := SocketPath("/"+strings.Repeat("d", 60), inv, "g"); err == nil {
		t.Errorf("a long directory: got %s, want an error", got)
	}
}

// TestListen: the first of many callers creates the socket, and the others find it. A dead socket is replaced. The last
// Close leaves no file.
func TestListen(t *testing.T) {
	ctx, dir := within(t), shortDir(t)
	path := filepath.Join(dir, "deep", "socket")
	var created []Socket
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			s, err := Listen(ctx, path)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if s.File != nil {
				created = append(created, s)
			}
		})
	}
	wg.Wait()
	if len(created) != 1 {
		t.Fatalf("%d sockets were created, want 1", len(created))
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket is %v, %v", info, err)
	}
	created[0].File.Close() // its process was killed
	s, err := Listen(ctx, path)
	if err != nil || s.File == nil {
		t.Fatalf("after the death of a front: got %+v, %v, want a new socket", s, err)
	}
	l, err := net.FileListener(s.File)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if conn, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
	if err := (Socket{Path: path}).Close(ctx); err != nil {
		t.Error(err)
	}
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestListenRefuses(t *testing.T) {
	ctx, dir := within(t), shortDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Listen(ctx, filepath.Join(file, "socket")); err == nil {
		t.Errorf("below a file: got %+v, want an error", s)
	}
}

// shortDir returns a directory with a path that is short enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "front")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestRemoveDead: the socket of a dead front is removed, and nothing else.
func TestRemoveDead(t *testing.T) {
	dir := t.TempDir()
	bundle := t.TempDir()
	socket := func(name string) *os.File {
		f, err := listen(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	socket("dead").Close()
	defer socket("alive").Close()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := RemoveDead(within(t), bundle); err != nil {
		t.Errorf("a bundle without an address: %v", err)
	}
	for name, stays := range map[string]bool{"dead": false, "alive": true, "file": true, "missing": false} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(bundle, AddressName), []byte(Address(path)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := RemoveDead(within(t), bundle); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(path); (err == nil) != stays {
			t.Errorf("%s: it stays: %v", name, err)
		}
	}
}
