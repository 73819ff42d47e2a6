package resolver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// at is free for each test, because all of 127.0.0.0/8 is the loopback's.
func at(host byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 11, byte(os.Getpid()), host}), 5353)
}

// listening returns a relay with open sockets.
func listening(t *testing.T, host byte) (*Relay, string) {
	t.Helper()
	r := &Relay{}
	for range 2 { // a second call changes nothing
		if err := r.listen(at(host), func(*os.File, uint16) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, s := range r.sockets {
			s.Close()
		}
	})
	return r, at(host).String()
}

// host serves a stream of the relay and returns the host's end.
func host(t *testing.T, r *Relay) net.Conn {
	t.Helper()
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() { defer close(done); r.Serve(far) }()
	t.Cleanup(func() {
		near.Close()
		select {
		case <-done:
		case <-time.After(testdeadline.For(10 * time.Second)):
			t.Error("Serve does not end")
		}
	})
	if err := near.SetDeadline(time.Now().Add(testdeadline.For(20 * time.Second))); err != nil {
		t.Fatal(err)
	}
	return near
}

// next returns the next query.
func next(t *testing.T, host net.Conn) agentv1.Datagram {
	t.Helper()
	d, err := agentv1.ReadDatagram(host, make([]byte, agentv1.MaxDatagram))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func answer(t *testing.T, host net.Conn, query agentv1.Datagram, data []byte) {
	t.Helper()
	frame := make([]byte, agentv1.DatagramHeader, agentv1.DatagramHeader+len(data))
	agentv1.PutDatagram(frame, query.Flow, query.Port, len(data))
	if _, err := host.Write(append(frame, data...)); err != nil {
		t.Fatal(err)
	}
}

// dial connects a client of the relay.
func dial(t *testing.T, network, to string) net.Conn {
	t.Helper()
	conn, err := net.Dial(network, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testdeadline.For(20 * time.Second))); err != nil {
		t.Fatal(err)
	}
	return conn
}

// write sends a message, over TCP with its length.
func write(t *testing.T, conn net.Conn, message []byte) {
	t.Helper()
	if conn.RemoteAddr().Network() == "tcp" {
		message = append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)
	}
	if _, err := conn.Write(message); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, conn net.Conn) []byte {
	t.Helper()
	buf := make([]byte, agentv1.MaxDatagram)
	if conn.RemoteAddr().Network() == "udp" {
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return buf[:n]
	}
	if _, err := io.ReadFull(conn, buf[:2]); err != nil {
		t.Fatal(err)
	}
	buf = buf[:binary.BigEndian.Uint16(buf)]
	if _, err := io.ReadFull(conn, buf); err != nil {
		t.Fatal(err)
	}
	return buf
}

// message returns a message of a size, which differs from other messages.
func message(size int, mark string) []byte {
	return append([]byte(mark), bytes.Repeat([]byte{0}, size-len(mark))...)
}

// TestExchange checks messages of the extreme sizes, and the answer of a host that has none.
func TestExchange(t *testing.T) {
	t.Parallel()
	r, address := listening(t, 1)
	h := host(t, r)
	for network, over := range map[string]uint16{"udp": agentv1.OverUDP, "tcp": agentv1.OverTCP} {
		conn := dial(t, network, address)
		for _, size := range []int{agentv1.DNSHeader, 512, 60000} {
			question, reply := message(size, "question"), message(size, "answer")
			write(t, conn, question)
			q := next(t, h)
			if q.Port != over || !bytes.Equal(q.Data, question) {
				t.Errorf("%s: the host got %d bytes over %d, want %d over %d", network, len(q.Data), q.Port, size, over)
			}
			answer(t, h, agentv1.Datagram{Flow: q.Flow + 100}, reply) // no such query
			answer(t, h, q, reply)
			if got := read(t, conn); !bytes.Equal(got, reply) {
				t.Errorf("%s: the client got %d bytes, want %d", network, len(got), size)
			}
		}
		write(t, conn, []byte("\x12\x34\x01\x00rest of it"))
		answer(t, h, next(t, h), nil)
		if got := read(t, conn); string(got) != "\x12\x34\x81\x02rest of it" {
			t.Errorf("%s: a failure is answered with %q", network, got)
		}
	}
}

// TestWait checks that queries wait for a stream, and go to the next one if a stream ends before their answers.
func TestWait(t *testing.T) {
	t.Parallel()
	r, address := listening(t, 2)
	udp, tcp := dial(t, "udp", address), dial(t, "tcp", address)
	write(t, udp, message(20, "by udp"))
	write(t, tcp, message(20, "by tcp"))
	first := host(t, r)
	for range 2 {
		next(t, first)
	}
	second := host(t, r) // the first one ends
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the first stream: %v, want its end", err)
	}
	for range 2 {
		q := next(t, second)
		answer(t, second, q, q.Data)
	}
	if got, want := string(read(t, udp)[:6])+string(read(t, tcp)[:6]), "by udpby tcp"; got != want {
		t.Errorf("answers %q, want %q", got, want)
	}
}

// TestBounds checks that queries beyond MaxQueries are dropped, that short ones are, and that answers make room.
func TestBounds(t *testing.T) {
	t.Parallel()
	r, address := listening(t, 3)
	h := host(t, r)
	udp, tcp := dial(t, "udp", address), dial(t, "tcp", address)
	write(t, udp, []byte("short"))
	var all []agentv1.Datagram
	for i := range agentv1.MaxQueries {
		write(t, udp, message(20, fmt.Sprint("query ", i)))
		all = append(all, next(t, h))
	}
	write(t, udp, message(20, "too many"))
	write(t, tcp, message(20, "too many"))
	if _, err := tcp.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("one too many over TCP: %v, want the connection's end", err)
	}
	answer(t, h, all[0], message(20, "room"))
	if got := read(t, udp); string(got[:4]) != "room" {
		t.Errorf("got %q", got)
	}
	write(t, udp, message(20, "last"))
	if q := next(t, h); string(q.Data[:4]) != "last" {
		t.Errorf("the host got %q after an answer", q.Data)
	}
}

// TestShort checks that a TCP connection with a wrong message ends.
func TestShort(t *testing.T) {
	t.Parallel()
	_, address := listening(t, 4)
	conn := dial(t, "tcp", address)
	write(t, conn, []byte("short"))
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
}
