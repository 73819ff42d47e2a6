package channel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/channel/frame"
)

// script is a guest's port; the test plays the host, frame by frame.
type script struct {
	t    *testing.T
	in   chan []byte // nil ends a host
	out  chan []byte
	shut chan struct{}
	once sync.Once
	fail error // of reads after Close
}

// serveScript serves a port with a handler that sends the data it reads to got, and "ended" at the end of its stream.
func serveScript(t *testing.T) (p *script, got chan string, served chan error, cancel func()) {
	t.Helper()
	p = &script{t: t, in: make(chan []byte), out: make(chan []byte, 100), shut: make(chan struct{}), fail: io.ErrClosedPipe}
	got, served = make(chan string, 100), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		served <- Serve(ctx, p, Hello{Version: 7}, func(conn net.Conn) {
			defer conn.Close()
			b := make([]byte, 3)
			for {
				if _, err := io.ReadFull(conn, b); err != nil {
					got <- "ended"
					return
				}
				got <- string(b)
			}
		})
	}()
	t.Cleanup(func() { cancel(); p.Close() })
	return p, got, served, cancel
}

func (p *script) Read(b []byte) (int, error) {
	select {
	case sent := <-p.in:
		if sent == nil {
			return 0, io.EOF
		}
		return copy(b, sent), nil
	case <-p.shut:
		return 0, p.fail
	}
}

func (p *script) Write(b []byte) (int, error) {
	select {
	case p.out <- slices.Clone(b):
		return len(b), nil
	case <-p.shut:
		return 0, p.fail
	}
}

func (p *script) Close() error {
	p.once.Do(func() { close(p.shut) })
	return nil
}

// send sends frames, one in each read.
func (p *script) send(frames ...[]byte) {
	p.t.Helper()
	for _, f := range frames {
		select {
		case p.in <- f:
		case <-time.After(5 * time.Second):
			p.t.Fatal("the guest does not read")
		}
	}
}

// expect checks the kind and epoch of the guest's next frame that is not data.
func (p *script) expect(k frame.Kind, epoch uint64) {
	p.t.Helper()
	for {
		select {
		case b := <-p.out:
			f, err := frame.NewDecoder(bytes.NewReader(b), false).Next()
			if err != nil {
				p.t.Fatalf("% x: %v", b, err)
			}
			if f.Kind == frame.Data {
				continue
			}
			if f.Kind != k || f.Epoch != epoch {
				p.t.Fatalf("a frame of kind %d and epoch %d, want %d and %d", f.Kind, f.Epoch, k, epoch)
			}
			return
		case <-time.After(5 * time.Second):
			p.t.Fatalf("no frame of kind %d", k)
		}
	}
}

func receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(5 * time.Second):
		t.Fatal("no data arrives")
	}
	return v
}

func helloFrame(epoch uint64, body string) []byte {
	return frame.Append(nil, frame.Hello, epoch, []byte(body))
}

// inner returns a data frame with a yamux header and data.
func inner(epoch uint64, typ byte, flags uint16, stream uint32, data string) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0, typ}, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	return frame.Append(nil, frame.Data, epoch, b, []byte(data))
}

// TestServeEpochs: a session accepts only frames of its own epoch, and ignores a repeated hello. The next epoch's
// hello, an End, or a disconnected host ends it.
func TestServeEpochs(t *testing.T) {
	t.Parallel()
	p, got, _, _ := serveScript(t)
	p.expect(frame.Ready, 0)
	// Not a hello, so no answer: the first answer is to the next hello.
	p.send(helloFrame(9, "not JSON"), helloFrame(0, "{}"), inner(9, muxData, 0, 1, "abc"), frame.Append(nil, frame.End, 9))
	begin := func(epoch uint64) {
		t.Helper()
		p.send(helloFrame(epoch, "{}"))
		p.expect(frame.Answer, epoch)
		p.send(inner(epoch, muxWindow, muxSYN, 1, ""), inner(epoch, muxData, 0, 1, "abc"))
		if text := receive(t, got); text != "abc" {
			t.Fatalf("the stream reads %q", text)
		}
	}
	begin(5)
	p.send(helloFrame(5, "{}"))
	p.expect(frame.Answer, 5)
	p.send(inner(6, muxData, 0, 1, "old"), frame.Append(nil, frame.End, 6), frame.Append(nil, frame.Ready, 5), inner(5, muxData, 0, 1, "def"))
	if text := receive(t, got); text != "def" {
		t.Errorf("another epoch's frames changed the stream: it reads %q", text)
	}
	for _, end := range []struct {
		name  string
		sent  []byte
		kind  frame.Kind
		epoch uint64
		next  uint64
	}{
		{"the next session", helloFrame(10, "{}"), frame.Answer, 10, 11},
		{"a host that goes", nil, frame.Ready, 0, 12},
	} {
		p.send(end.sent)
		p.expect(end.kind, end.epoch)
		if text := receive(t, got); text != "ended" {
			t.Errorf("%s: the stream reads %q", end.name, text)
		}
		p.send(inner(5, muxData, 0, 1, "old"))
		begin(end.next)
	}
	p.send(frame.Append(nil, frame.End, 12))
	if text := receive(t, got); text != "ended" {
		t.Errorf("the host's end: the stream reads %q", text)
	}
	p.send(inner(12, muxData, 0, 1, "old"), frame.Append(nil, frame.End, 12))
	begin(13)
}

// TestServeTellsItsEnd: if the multiplexer ends a session, the host is notified once, and the next session starts.
func TestServeTellsItsEnd(t *testing.T) {
	t.Parallel()
	p, _, _, _ := serveScript(t)
	p.expect(frame.Ready, 0)
	for epoch := uint64(5); epoch < 8; epoch++ {
		p.send(helloFrame(epoch, "{}"))
		p.expect(frame.Answer, epoch)
		p.send(frame.Append(nil, frame.Data, epoch, []byte("this is no header of yamux")))
		p.expect(frame.End, epoch)
	}
}

// TestServeEnds: Serve returns its context's error, or else the port's.
func TestServeEnds(t *testing.T) {
	t.Parallel()
	p, _, served, cancel := serveScript(t)
	p.expect(frame.Ready, 0)
	cancel()
	if err := receive(t, served); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	p, _, served, _ = serveScript(t)
	p.expect(frame.Ready, 0)
	p.Close()
	if err := receive(t, served); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a port that fails: %v", err)
	}
}
