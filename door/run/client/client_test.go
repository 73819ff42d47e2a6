package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// TestNoName: an empty name is not taken as another path.
func TestNoName(t *testing.T) {
	start := func(context.Context, dirs.Roots) error { t.Error("started"); return nil }
	c := New(dirs.Roots{Data: t.TempDir(), State: t.TempDir()}, start)
	for _, path := range []string{"/v1/pods/", "/v1/pods//stop", "/v1/pods/./exec", "/v1/images/..", "/v1/pods/../stop"} {
		if err := c.Call(t.Context(), "POST", path, nil, nil, nil); !errors.Is(err, errdefs.ErrNotFound) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestUnusableDirectories: if no engine could work, the error says what to set.
func TestUnusableDirectories(t *testing.T) {
	long := "/" + strings.Repeat("s", dirs.MaxState)
	for _, tc := range []struct {
		roots dirs.Roots
		want  string
	}{
		{dirs.Roots{Data: t.TempDir(), State: long}, "set BULKHEAD_STATE to a shorter path"},
		{dirs.Roots{Data: "/dev/null/data", State: "/nonexistent"}, "(set BULKHEAD_DATA and BULKHEAD_STATE to directories of your own)"},
	} {
		start := func(context.Context, dirs.Roots) error { t.Error("started"); return nil }
		err := New(tc.roots, start).Call(t.Context(), "GET", "/v1/pods", nil, nil, nil)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v", tc.roots, err)
		}
	}
}

// TestStrangersSocket: in a world-writable directory, another user has created the state directory first, and
// listens there. The client must send nothing.
func TestStrangersSocket(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	tmp, err := os.MkdirTemp("/tmp", "bh-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	roots := dirs.Roots{Data: t.TempDir(), State: filepath.Join(tmp, "s")}
	if err := os.MkdirAll(roots.Instance(Instance), 0o777); err != nil {
		t.Fatal(err)
	}
	const stranger = 12345
	for _, dir := range []string{tmp, roots.State, roots.Instance(Instance)} {
		if err := os.Chown(dir, stranger, stranger); err != nil {
			t.Fatal(err)
		}
	}
	l := listenAs(t, stranger, Socket(roots))
	heard := make(chan int, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			heard <- 0
			return
		}
		defer conn.Close()
		n, _ := conn.Read(make([]byte, 1))
		heard <- n
	}()
	start := func(context.Context, dirs.Roots) error { t.Error("started"); return nil }
	err = New(roots, start).Call(t.Context(), "POST", "/v1/login", nil, "password", nil)
	if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "set BULKHEAD_STATE") {
		t.Errorf("call: %v", err)
	}
	if n := <-heard; n != 0 {
		t.Error("the stranger received data")
	}
}

// listenAs listens on a thread with another user.
func listenAs(t *testing.T, uid uintptr, path string) (l net.Listener) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid)
		if errno != 0 {
			done <- errno
			return
		}
		var err error
		l, err = net.Listen("unix", path)
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestForsaken: if an engine dies while it runs pods for a command, the client starts another engine, which ends
// the pods. After a read-only request it does not.
func TestForsaken(t *testing.T) {
	failed := errors.New("no engine today")
	for _, tc := range []struct {
		method string
		start  error
		starts int
	}{
		{method: "POST", starts: 1},
		{method: "POST", start: failed, starts: 1},
		{method: "GET"},
	} {
		tmp, err := os.MkdirTemp("/tmp", "bh-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(tmp) })
		roots := dirs.Roots{Data: t.TempDir(), State: tmp}
		if err := os.MkdirAll(roots.Instance(Instance), 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", Socket(roots))
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"notice": "begun"}`+"\n")
			_ = http.NewResponseController(w).Flush()
			l.Close()
			panic(http.ErrAbortHandler) // as a killed engine does
		})}
		go srv.Serve(l)
		t.Cleanup(func() { srv.Close() })
		starts, heard := 0, 0
		c := New(roots, func(context.Context, dirs.Roots) error { starts++; return tc.start })
		err = c.Stream(t.Context(), tc.method, "/v1/pods", nil, nil, func(api.Message) error { heard++; return nil })
		if err == nil || !strings.Contains(err.Error(), "the engine went away") || !errors.Is(err, tc.start) && tc.start != nil {
			t.Errorf("%+v: %v", tc, err)
		}
		if starts != tc.starts || heard != 1 {
			t.Errorf("%+v: %d starts, %d messages", tc, starts, heard)
		}
	}
}
