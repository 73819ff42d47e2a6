package channel

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// slowPort reports each write, and completes it on request.
type slowPort struct {
	writes chan string
	let    chan error
}

func (p slowPort) Write(b []byte) (int, error) {
	p.writes <- string(b)
	return len(b), <-p.let
}

// TestOutbox: frames that arrive while the port is busy are written together, in order. A flush waits for all earlier
// frames.
func TestOutbox(t *testing.T) {
	p := slowPort{make(chan string), make(chan error)}
	o := newOutbox(p)
	add := func(frame string) {
		t.Helper()
		if err := o.add([]byte(frame)); err != nil {
			t.Error(err)
		}
	}
	add("a")
	if got := <-p.writes; got != "a" {
		t.Errorf("at first %q", got)
	}
	add("b")
	add("c")
	p.let <- nil
	if got := <-p.writes; got != "bc" {
		t.Errorf("then %q", got)
	}
	add("d")
	flushed := make(chan error, 1)
	go func() { flushed <- o.flush() }()
	p.let <- nil
	if got := <-p.writes; got != "d" {
		t.Errorf("at last %q", got)
	}
	if len(flushed) > 0 {
		t.Error("flushed before the port has it")
	}
	p.let <- nil
	if err := <-flushed; err != nil {
		t.Error(err)
	}
	o.close()
}

// TestOutboxFull: adding more than the bound blocks, and returns the port's error, like all later calls.
func TestOutboxFull(t *testing.T) {
	p := slowPort{make(chan string), make(chan error)}
	o := newOutbox(p)
	added := make(chan error, 1)
	go func() { added <- o.add([]byte(strings.Repeat("x", maxHeld))) }()
	if got := <-p.writes; len(got) != maxHeld {
		t.Errorf("%d bytes", len(got))
	}
	if len(added) > 0 {
		t.Error("more is taken than may be held")
	}
	p.let <- io.ErrClosedPipe
	for _, err := range []error{<-added, o.add([]byte("y")), o.flush()} {
		if !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("after the port's end: %v", err)
		}
	}
	o.close()
}
