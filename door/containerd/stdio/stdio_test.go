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

// TestFifos: the process's output reaches the client, which sees its end. The process waits while no client is connected.
func TestFifos(t *testing.T) {
	dir := t.TempDir()
	names := Names{Stdout: fifo(t, dir, "out"), Stderr: fifo(t, dir, "err")}
	s := openAll(t, names)
	if s.Stdin != nil {
		t.Error("stdin is open, but has no name")
	}
	for _, f := range []*os.File{s.Stdout, s.Stderr} {
		if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
			t.Errorf("%s has flags %#x, %v, want blocking mode", f.Name(), flags, err)
		}
	}
	if _, err := s.Stdout.WriteString("before any client\n"); err != nil {
		t.Fatal(err)
	}
	client, err := os.Open(names.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	client.Close() // containerd is restarted
	if _, err := s.Stdout.WriteString("between clients\n"); err != nil {
		t.Fatal(err)
	}
	if client, err = os.Open(names.Stdout); err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s.Release()
	got, err := io.ReadAll(client)
	if want := "before any client\nbetween clients\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// TestStdin: the process sees the end of its input after CloseStdin and the end of the client, in either order.
func TestStdin(t *testing.T) {
	for _, closeFirst := range []bool{true, false} {
		dir := t.TempDir()
		names := Names{Stdin: fifo(t, dir, "in"), Stdout: fifo(t, dir, "out"), Terminal: true}
		s := openAll(t, names)
		if s.Stderr != nil {
			t.Error("a terminal has a stderr")
		}
		input := make(chan string)
		go func() {
			got, _ := io.ReadAll(s.Stdin)
			input <- string(got)
		}()
		for _, text := range []string{"first ", "second"} { // two clients, one after the other
			client, err := os.OpenFile(names.Stdin, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.WriteString(text); err != nil {
				t.Fatal(err)
			}
			if closeFirst && text == "second" {
				s.CloseStdin()
			}
			client.Close()
		}
		s.CloseStdin()
		if got := <-input; got != "first second" {
			t.Errorf("got %q", got)
		}
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
		"missing stderr": {Names{Stdout: fifo(t, dir, "out"), Stderr: filepath.Join(dir, "none")}, os.ErrNotExist},
		"streaming":      {Names{Stdout: "ttrpc+unix:///run/x?streaming_id=1"}, ErrUnsupported},
		"a named pipe":   {Names{Stdout: "npipe:////./pipe/x"}, ErrUnsupported},
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
