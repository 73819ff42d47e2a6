package hostfiles

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/progress"
	"github.com/bulkhead-project/bulkhead/internal/test/testpty"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/output"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/rawfile"
)

func use(t *testing.T, f Files, targets Targets) *Open {
	t.Helper()
	set, err := progress.Create()
	if err != nil {
		t.Fatal(err)
	}
	record, err := progress.Open(set)
	if err != nil {
		t.Fatal(err)
	}
	o, err := Use(f, record, targets, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

// TestKinds passes bytes through files of different kinds, with and without splice.
func TestKinds(t *testing.T) {
	text := strings.Repeat("0123456789abcde\n", 1000)
	for name, open := range map[string]func(t *testing.T) (in, out *os.File, feed io.Writer, result func() string){
		"a pipe and a file": func(t *testing.T) (in, out *os.File, feed io.Writer, result func() string) {
			r, w, err := os.Pipe()
			path := filepath.Join(t.TempDir(), "f")
			out, err2 := os.Create(path)
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			return r, out, w, func() string { w.Close(); return read(t, path) }
		},
		"a file and a file for appending": func(t *testing.T) (in, out *os.File, feed io.Writer, result func() string) {
			path := filepath.Join(t.TempDir(), "in")
			w, err := os.Create(path)
			in, err2 := os.Open(path)
			out, err3 := os.OpenFile(path+"-out", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			if err := errors.Join(err, err2, err3); err != nil {
				t.Fatal(err)
			}
			return in, out, w, func() string { return read(t, path+"-out") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			in, out, feed, result := open(t)
			targets := Targets{output.NewTarget(), output.NewTarget()}
			o := use(t, Files{Stdin: in, Stdout: out}, targets)
			if _, err := io.WriteString(feed, text); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(text))
			if _, err := io.ReadFull(o.Stdin(), got); err != nil || string(got) != text {
				t.Errorf("stdin: %v", err)
			}
			for i, target := range targets { // stderr is discarded
				if at, err := target.Write(t.Context(), 0, got); at != int64(len(text)) || err != nil {
					t.Errorf("output %d: %d, %v", i, at, err)
				}
			}
			if written := result(); written != text {
				t.Errorf("stdout has %d bytes of %d", len(written), len(text))
			}
			last, err := o.Input().Last()
			if string(last) != text || err != nil {
				t.Errorf("%d bytes of stdin are kept, %v", len(last), err)
			}
			o.Disconnect()
			if _, err := o.Stdin().Read(got); !errors.Is(err, rawfile.ErrInterrupted) {
				t.Errorf("Read after Disconnect: %v", err)
			}
		})
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTerminal(t *testing.T) {
	master, slave := testpty.Open(t)
	testpty.Raw(t, slave)
	targets := Targets{output.NewTarget(), output.NewTarget()}
	o := use(t, Files{Terminal: slave}, targets)
	defer o.Disconnect()
	if _, err := master.WriteString("typed"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	if n, err := o.Stdin().Read(b); string(b[:n]) != "typed" || err != nil {
		t.Errorf("stdin: %q, %v", b[:n], err)
	}
	if _, err := targets[0].Write(t.Context(), 0, []byte("shown")); err != nil {
		t.Error(err)
	}
	if n, err := master.Read(b); string(b[:n]) != "shown" || err != nil {
		t.Errorf("stdout: %q, %v", b[:n], err)
	}
}

// TestStdinEnds: without a file at once, and with Drain when all bytes are read.
func TestStdinEnds(t *testing.T) {
	o := use(t, Files{}, Targets{output.NewTarget(), output.NewTarget()})
	defer o.Disconnect()
	o.Drain()
	if got, err := io.ReadAll(o.Stdin()); len(got) > 0 || err != nil {
		t.Errorf("without a file: %q, %v", got, err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	o = use(t, Files{Stdin: r}, Targets{output.NewTarget(), output.NewTarget()})
	defer o.Disconnect()
	if _, err := w.WriteString("last"); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*time.Millisecond, o.Drain)
	if got, err := io.ReadAll(o.Stdin()); string(got) != "last" || err != nil {
		t.Errorf("with Drain: %q, %v", got, err)
	}
}

// TestUseFails: a Use that fails leaves no output connected.
func TestUseFails(t *testing.T) {
	set, err := progress.Create()
	if err != nil {
		t.Fatal(err)
	}
	record, err := progress.Open(set)
	if err != nil {
		t.Fatal(err)
	}
	defer record.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	targets := Targets{output.NewTarget(), output.NewTarget()}
	if _, err := Use(Files{Stdin: r, Stdout: w}, record, targets, true); err == nil {
		t.Error("Use of a closed file succeeded")
	}
	for i, target := range targets {
		if target.Busy() {
			t.Errorf("output %d is connected", i)
		}
	}
}
