package channel_test

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/channel"
)

const (
	hello  = 1
	answer = 2
	data   = 3
	end    = 5
)

// frame encodes a frame independently of the package.
func frame(kind byte, epoch uint64, payload []byte) []byte {
	b := []byte{0xB5, 'k', 'h', 0xD1, kind, 0}
	b = binary.BigEndian.AppendUint16(b, uint16(len(payload)))
	b = binary.BigEndian.AppendUint64(b, epoch)
	b = append(b, payload...)
	return binary.BigEndian.AppendUint64(b, epoch)
}

// header returns a yamux header.
func header(typ byte, flags uint16, stream, length uint32) []byte {
	b := []byte{0, typ}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return binary.BigEndian.AppendUint32(b, length)
}

// readHello waits for the host's hello and returns its epoch.
func readHello(t testing.TB, c net.Conn) uint64 {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	defer c.SetReadDeadline(time.Time{})
	head := make([]byte, 16)
	if _, err := io.ReadFull(c, head); err != nil {
		t.Fatal(err)
	}
	rest := make([]byte, int(binary.BigEndian.Uint16(head[6:]))+8)
	if _, err := io.ReadFull(c, rest); err != nil {
		t.Fatal(err)
	}
	if head[4] != hello {
		t.Fatalf("frame of kind %d", head[4])
	}
	return binary.BigEndian.Uint64(head[8:])
}

// hostile starts a session with a guest that the test plays.
func hostile(t testing.TB) (*channel.Session, net.Conn, uint64) {
	t.Helper()
	near, far := pair(t)
	sessions := make(chan *channel.Session, 1)
	failed := make(chan error, 1)
	go func() {
		s, err := channel.Host(timeout(t, 5*time.Second), near, channel.Options{})
		if err != nil {
			failed <- err
			return
		}
		sessions <- s
	}()
	epoch := readHello(t, far)
	far.Write(frame(answer, epoch, []byte(`{"version":1}`)))
	select {
	case s := <-sessions:
		t.Cleanup(func() { s.Close() })
		return s, far, epoch
	case err := <-failed:
		t.Fatal(err)
	}
	return nil, nil, 0
}

// TestGarbage: data that no agent sends ends the session with an error that blames the guest.
func TestGarbage(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 100<<10)
	rand.Read(noise)
	for name, tc := range map[string]struct {
		raw   []byte // after the answer
		inner []byte // in a data frame
		end   bool   // a regular end
	}{
		"noise":              {raw: noise},
		"zeros":              {raw: make([]byte, 100<<10)},
		"huge frame":         {raw: append([]byte{0xB5, 'k', 'h', 0xD1, data, 0, 0xff, 0xff}, make([]byte, 8)...)},
		"unknown kind":       {raw: append([]byte{0xB5, 'k', 'h', 0xD1, 77, 0, 0, 0}, make([]byte, 8)...)},
		"no tail":            {raw: append(frame(data, 42, []byte("x"))[:17], make([]byte, 100)...)},
		"inner noise":        {inner: noise[:1000]},
		"guest opens stream": {inner: header(1, 1, 2, 0)},
		"guest opens host's": {inner: header(1, 1, 1, 0)},
		"data with SYN":      {inner: append(header(0, 1, 2, 4), "data"...)},
		"ping":               {inner: header(2, 1, 0, 1)},
		"huge data":          {inner: header(0, 0, 1, 1<<31)},
		"unknown type":       {inner: header(9, 0, 1, 0)},
		"unknown version":    {inner: append([]byte{7}, header(0, 0, 1, 0)[1:]...)},
		"end":                {raw: nil, end: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, far, epoch := hostile(t)
			switch {
			case tc.end:
				far.Write(frame(end, epoch, nil))
			case tc.inner != nil:
				far.Write(frame(data, epoch, tc.inner))
			default:
				far.SetWriteDeadline(time.Now().Add(time.Second))
				far.Write(tc.raw)
			}
			select {
			case <-s.Done():
			case <-time.After(5 * time.Second):
				t.Fatal("the session goes on")
			}
			if got := errors.Is(s.Err(), channel.ErrGuest); got == tc.end {
				t.Errorf("error: %v", s.Err())
			}
			if _, err := s.Open(context.Background()); err == nil {
				t.Error("a stream opens")
			}
		})
	}
}

// TestGreetingGarbage answers hellos with garbage.
func TestGreetingGarbage(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(c net.Conn, epoch uint64){
		"nothing":     func(net.Conn, uint64) {},
		"flood":       func(c net.Conn, _ uint64) { io.Copy(c, rand.Reader) },
		"wrong epoch": func(c net.Conn, e uint64) { c.Write(frame(answer, e+1, []byte("{}"))) },
		"cut off":     func(c net.Conn, e uint64) { c.Write(frame(answer, e, []byte("{}"))[:20]) },
		"flood of answers": func(c net.Conn, e uint64) {
			for {
				if _, err := c.Write(frame(answer, e+1, make([]byte, 30000))); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near, far := pair(t)
			go func() { write(far, readHello(t, far)) }()
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			if s, err := channel.Host(ctx, near, channel.Options{}); err == nil {
				s.Close()
				t.Error("a session began")
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error: %v", err)
			}
			far.Close()
		})
	}
}

// TestStaleBytes puts remains of earlier sessions before the answer: whole frames, and half a frame with a length
// beyond it.
func TestStaleBytes(t *testing.T) {
	t.Parallel()
	near, far := pair(t)
	go func() {
		epoch := readHello(t, far)
		far.Write(frame(data, 12345, make([]byte, 30000))[15000:])
		far.Write(frame(data, 12345, []byte("old")))
		far.Write(frame(data, 12345, make([]byte, 30000))[:9000]) // truncated
		far.Write(frame(answer, 54321, []byte(`{"version":9}`)))
		far.Write(frame(answer, epoch, []byte(`{"version":3}`)))
		far.Write(frame(data, 12345, []byte("late, and of another epoch")))
		far.Write(frame(answer, epoch, []byte(`{"version":3}`))) // answer to a repeated hello
	}()
	s := host(t, near, channel.Options{})
	if s.Peer().Version != 3 {
		t.Errorf("peer = %+v", s.Peer())
	}
	select {
	case <-s.Done():
		t.Error(s.Err())
	case <-time.After(50 * time.Millisecond):
	}
}

// TestStall: with a guest that does not read, every caller can still leave.
func TestStall(t *testing.T) {
	t.Parallel()
	s, _, _ := hostile(t)
	var streams []net.Conn
	for range 20 {
		c, err := s.Open(timeout(t, 200*time.Millisecond))
		if err != nil {
			break
		}
		streams = append(streams, c)
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.Write(make([]byte, 250<<10))
		}()
		select {
		case <-done:
		case <-time.After(50 * time.Millisecond):
			c.Close()
			select {
			case <-done:
			case <-time.After(5 * time.Second):
				t.Fatal("a write does not end with its stream")
			}
		}
	}
	if len(streams) == 20 {
		t.Error("a guest that reads nothing takes everything")
	}
	began := time.Now()
	s.Close()
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("Close took %v", took)
	}
}

// TestFlood: a guest that fills every window and sends more uses bounded memory, and the excess ends the session.
func TestFlood(t *testing.T) {
	s, far, epoch := hostile(t)
	go io.Copy(io.Discard, far)
	open := 0
	for {
		c, err := s.Open(timeout(t, 5*time.Second))
		if errors.Is(err, channel.ErrTooMany) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if open++; open > 1000 {
			t.Fatal("any number of streams")
		}
	}
	if open != channel.MaxStreams {
		t.Errorf("%d streams", open)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	chunk := make([]byte, 16<<10)
	far.SetWriteDeadline(time.Now().Add(20 * time.Second))
	for round := range 17 { // the 17th is one too many
		for i := range open {
			if _, err := far.Write(frame(data, epoch, append(header(0, 2, uint32(1+2*i), uint32(len(chunk))), chunk...))); err != nil {
				if round < 16 {
					t.Fatalf("round %d: %v", round, err)
				}
				break
			}
		}
	}
	select {
	case <-s.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the session goes on")
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 160<<20 {
		t.Errorf("the guest's bytes took %d MiB", grown>>20)
	}
}

// TestGuestSurvives: after noise, partial frames and hellos, the agent's side serves the next host.
func TestGuestSurvives(t *testing.T) {
	t.Parallel()
	p := newPort()
	guest(t, p, echo)
	noise := make([]byte, 70<<10)
	rand.Read(noise)
	for name, raw := range map[string][]byte{
		"noise":        noise,
		"half a frame": frame(data, 99, make([]byte, 20000))[:1000],
		"inner noise":  append(frame(hello, 99, []byte("{}")), frame(data, 99, noise[:5000])...),
		"bad hello":    frame(hello, 98, []byte("not JSON")),
		"no epoch":     frame(hello, 0, []byte("{}")),
	} {
		c := p.connect(t)
		go io.Copy(io.Discard, c)
		c.SetWriteDeadline(time.Now().Add(time.Second))
		c.Write(raw)
		s := host(t, p.connect(t), channel.Options{Resume: true})
		roundTrip(t, s, 1000)
		t.Log(name)
	}
}
