package stdio

import (
	"io"
	"os"
	"testing"
	"time"
)

// read returns the whole input of a process.
func read(s *Streams) <-chan string {
	input := make(chan string, 1)
	go func() {
		got, _ := io.ReadAll(s.Stdin)
		input <- string(got)
	}()
	return input
}

// client connects a client to a fifo, which may have no reader yet.
func client(t *testing.T, path string) <-chan *os.File {
	t.Helper()
	connected := make(chan *os.File, 1)
	go func() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
		}
		connected <- f
	}()
	return connected
}

func write(t *testing.T, f *os.File, text string) {
	t.Helper()
	if _, err := f.WriteString(text); err != nil {
		t.Error(err)
	}
}

// TestStdin: the process sees the end of its input after CloseStdin and the end of the client, in either order. A client that
// disconnects is followed by another one.
func TestStdin(t *testing.T) {
	for _, closeFirst := range []bool{true, false} {
		dir := t.TempDir()
		names := Names{Stdin: fifo(t, dir, "in"), Stdout: os.DevNull, Terminal: true}
		first := client(t, names.Stdin)
		s := openAll(t, names)
		if s.Stderr != nil {
			t.Error("a terminal has a stderr")
		}
		c := <-first
		s.HoldStdin()
		input := read(s)
		write(t, c, "first ")
		c.Close()
		c = <-client(t, names.Stdin)
		write(t, c, "second")
		if closeFirst {
			s.CloseStdin()
		}
		c.Close()
		s.CloseStdin()
		s.HoldStdin() // too late
		if got := <-input; got != "first second" {
			t.Errorf("got %q", got)
		}
	}
}

// TestStdinEndsEarly: a client that has ended its input before the process runs has ended it for good.
func TestStdinEndsEarly(t *testing.T) {
	dir := t.TempDir()
	names := Names{Stdin: fifo(t, dir, "in")}
	connected := client(t, names.Stdin)
	s := openAll(t, names)
	c := <-connected
	write(t, c, "all")
	c.Close()
	s.HoldStdin()
	if got := <-read(s); got != "all" {
		t.Errorf("got %q", got)
	}
}

// TestStdinWithoutClient: without a client the input is open and empty. The first one comes later.
func TestStdinWithoutClient(t *testing.T) {
	dir := t.TempDir()
	names := Names{Stdin: fifo(t, dir, "in")}
	s := openAll(t, names)
	s.HoldStdin()
	input := read(s)
	select {
	case got := <-input:
		t.Errorf("got %q before any client", got)
	case <-time.After(10 * time.Millisecond):
	}
	c := <-client(t, names.Stdin)
	write(t, c, "late")
	c.Close()
	s.CloseStdin()
	if got := <-input; got != "late" {
		t.Errorf("got %q", got)
	}
}
