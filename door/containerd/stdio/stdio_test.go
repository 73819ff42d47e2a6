package stdio

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func fifo(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func openAll(t *testing.T, names Names) *Streams {
	t.Helper()
	s, err := Open(bounded(t), names, Owner{Namespace: "n", ID: "c"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Release()
		s.Close()
	})
	return s
}

// reader connects a client to an output, which may have no writer yet.
func reader(t *testing.T, path string) <-chan *os.File {
	t.Helper()
	connected := make(chan *os.File, 1)
	go func() {
		f, err := os.Open(path)
		if err != nil {
			t.Error(err)
		}
		connected <- f
	}()
	return connected
}

// TestFifos: the process's output reaches the client, which sees its end. The process waits while no client is connected.
func TestFifos(t *testing.T) {
	dir := t.TempDir()
	names := Names{Stdout: fifo(t, dir, "out"), Stderr: fifo(t, dir, "err")}
	first, other := reader(t, names.Stdout), reader(t, names.Stderr)
	s := openAll(t, names)
	if s.Stdin != nil {
		t.Error("stdin is open, but has no name")
	}
	for _, f := range []*os.File{s.Stdout, s.Stderr} {
		if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
			t.Errorf("%s has flags %#x, %v, want blocking mode", f.Name(), flags, err)
		}
	}
	write(t, s.Stderr, "error")
	s.Stderr.Close()
	client := <-other
	defer client.Close()
	if got, err := io.ReadAll(client); err != nil || string(got) != "error" {
		t.Errorf("stderr: got %q, %v", got, err)
	}
	client = <-first
	client.Close() // containerd is restarted
	write(t, s.Stdout, "between clients\n")
	client = <-reader(t, names.Stdout)
	defer client.Close()
	write(t, s.Stdout, "later\n")
	s.Release()
	got, err := io.ReadAll(client)
	if want := "between clients\nlater\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// TestSlowClient: the process waits for a client that opens its end late. The end of the context ends the wait.
func TestSlowClient(t *testing.T) {
	dir := t.TempDir()
	out := fifo(t, dir, "out")
	read := make(chan struct{})
	time.AfterFunc(50*time.Millisecond, func() {
		defer close(read)
		f, err := os.Open(out)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		if got, err := io.ReadAll(f); err != nil || string(got) != "short" {
			t.Errorf("got %q, %v", got, err)
		}
	})
	s := openAll(t, Names{Stdout: out})
	write(t, s.Stdout, "short")
	s.Release()
	<-read
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, Names{Stdout: fifo(t, dir, "none")}, Owner{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no client: got %v, want the context's error", err)
	}
}

// TestFile: both outputs are appended to one file, which is created with its directory.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "log")
	for range 2 {
		s := openAll(t, Names{Stdin: "ignored", Stdout: "file://" + path, Stderr: "file://" + path})
		if s.Stdin != nil {
			t.Error("stdin is open")
		}
		for _, f := range []*os.File{s.Stdout, s.Stderr} {
			if _, err := f.WriteString("line\n"); err != nil {
				t.Fatal(err)
			}
		}
		s.Release()
		s.Close()
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != strings.Repeat("line\n", 4) {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestNone: without names there are no streams. Other files than fifos are written to.
func TestNone(t *testing.T) {
	s := openAll(t, Names{})
	if s.Stdin != nil || s.Stdout != nil || s.Stderr != nil {
		t.Errorf("got %v", s)
	}
	if s = openAll(t, Names{Stdout: os.DevNull}); s.Stdout == nil {
		t.Error("stdout is closed")
	}
}

func TestRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct {
		names Names
		want  error
	}{
		"missing fifo":   {Names{Stdout: filepath.Join(dir, "none")}, os.ErrNotExist},
		"missing stdin":  {Names{Stdin: filepath.Join(dir, "none")}, os.ErrNotExist},
		"missing stderr": {Names{Stdout: os.DevNull, Stderr: filepath.Join(dir, "none")}, os.ErrNotExist},
		"streaming":      {Names{Stdout: "ttrpc+unix:///run/x?streaming_id=1"}, errdefs.ErrNotImplemented},
		"a named pipe":   {Names{Stdout: "npipe:////./pipe/x"}, errdefs.ErrNotImplemented},
		"no path":        {Names{Stdout: "binary://"}, nil},
		"a relative one": {Names{Stdout: "binary:x"}, os.ErrNotExist},
		"no program":     {Names{Stdout: "binary://" + dir + "/none"}, os.ErrNotExist},
		"no URL":         {Names{Stdout: "binary://%zz"}, nil},
		"a bad file":     {Names{Stdout: "file://" + fifo(t, dir, "f") + "/x"}, nil},
	} {
		if _, err := Open(bounded(t), test.names, Owner{}); err == nil || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
	}
}
