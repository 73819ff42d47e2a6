package resolver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/thread"
)

// namespace returns a dialer of a new network namespace. A name server there answers a query with its own bytes behind
// "answer". It does not answer a query that begins with "silent", and ends a connection for "broken".
func namespace(t *testing.T) Dial {
	t.Helper()
	type job struct {
		do   func() error
		done chan error
	}
	jobs := make(chan job)
	go func() {
		err := thread.Do(func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			for j := range jobs {
				j.done <- j.do()
			}
			return nil
		})
		for j := range jobs {
			j.done <- err
		}
	}()
	inside := func(do func() error) error {
		j := job{do, make(chan error)}
		jobs <- j
		return <-j.done
	}
	t.Cleanup(func() { close(jobs) })
	var udp net.PacketConn
	var tcp net.Listener
	err := inside(func() (err error) {
		if err := up(); err != nil {
			return err
		}
		if udp, err = net.ListenPacket("udp4", server.String()); err != nil {
			return err
		}
		tcp, err = net.Listen("tcp4", server.String())
		return err
	})
	if errors.Is(err, unix.EPERM) {
		t.Skip("only root can create a network namespace")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { udp.Close(); tcp.Close() })
	go answerDatagrams(udp)
	go func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			go answerConn(conn)
		}
	}()
	return func(ctx context.Context, to netip.AddrPort, datagrams bool) (conn net.Conn, err error) {
		network := "tcp4"
		if datagrams {
			network = "udp4"
		}
		err = inside(func() (err error) {
			conn, err = net.Dial(network, to.String())
			return err
		})
		return conn, err
	}
}

// up brings the loopback up.
func up() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

func answerDatagrams(conn net.PacketConn) {
	buf := make([]byte, agentv1.MaxDatagram)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if !bytes.HasPrefix(buf[:n], []byte("silent")) {
			_, _ = conn.WriteTo(append([]byte("answer"), buf[:n]...), from)
		}
	}
}

func answerConn(conn net.Conn) {
	defer conn.Close()
	var header [2]byte
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return
	}
	query := make([]byte, binary.BigEndian.Uint16(header[:]))
	if _, err := io.ReadFull(conn, query); err != nil || bytes.HasPrefix(query, []byte("broken")) {
		return
	}
	if bytes.HasPrefix(query, []byte("silent")) {
		_, _ = conn.Read(header[:])
		return
	}
	answer := append([]byte("answer"), query...)
	_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
}

// serve serves a stream and returns the guest's end, and the error of Serve.
func serve(t *testing.T, dial Dial) (net.Conn, chan error) {
	t.Helper()
	host, guest := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Serve(t.Context(), host, dial) }()
	t.Cleanup(func() { guest.Close() })
	if err := guest.SetDeadline(time.Now().Add(testdeadline.For(20 * time.Second))); err != nil {
		t.Fatal(err)
	}
	return guest, ended
}

func ask(t *testing.T, guest net.Conn, number uint32, over uint16, data []byte) {
	t.Helper()
	frame := make([]byte, agentv1.DatagramHeader, agentv1.DatagramHeader+len(data))
	agentv1.PutDatagram(frame, number, over, len(data))
	if _, err := guest.Write(append(frame, data...)); err != nil {
		t.Fatal(err)
	}
}

func answer(t *testing.T, guest net.Conn) agentv1.Datagram {
	t.Helper()
	d, err := agentv1.ReadDatagram(guest, make([]byte, agentv1.MaxDatagram))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// ended waits for the end of Serve.
func ended(t *testing.T, end chan error) error {
	t.Helper()
	select {
	case err := <-end:
		return err
	case <-time.After(testdeadline.For(10 * time.Second)):
		t.Fatal("Serve does not end")
		return nil
	}
}

// TestAnswers checks messages of several sizes, and the empty answer for queries without one, over both transports.
func TestAnswers(t *testing.T) {
	guest, end := serve(t, namespace(t))
	number := uint32(0)
	for _, over := range []uint16{agentv1.OverUDP, agentv1.OverTCP} {
		for _, tc := range []struct {
			query  []byte
			answer string
		}{
			{query: []byte("of a service"), answer: "answerof a service"},
			{query: bytes.Repeat([]byte{'x'}, 60000), answer: "answer" + string(bytes.Repeat([]byte{'x'}, 60000))},
			{query: []byte("short")},
			{query: nil},
		} {
			number++
			ask(t, guest, number, over, tc.query)
			if d := answer(t, guest); d.Flow != number || d.Port != over || string(d.Data) != tc.answer {
				t.Errorf("a query of %d bytes over %d: %d bytes for number %d over %d", len(tc.query), over, len(d.Data), d.Flow, d.Port)
			}
		}
	}
	ask(t, guest, 100, agentv1.OverUDP, bytes.Repeat([]byte{'x'}, agentv1.MaxDatagram)) // more than UDP carries
	ask(t, guest, 100, agentv1.OverTCP, []byte("broken connection"))
	for range 2 {
		if d := answer(t, guest); d.Flow != 100 || len(d.Data) != 0 {
			t.Errorf("a query that fails: %d bytes", len(d.Data))
		}
	}
	guest.Close()
	if err := ended(t, end); !errors.Is(err, io.EOF) {
		t.Errorf("Serve: got %v, want %v", err, io.EOF)
	}
}

// TestSilence checks that queries without an answer delay no other one, and that a query fails after a time.
func TestSilence(t *testing.T) {
	guest, end := serve(t, namespace(t))
	for number := range uint32(agentv1.MaxQueries - 1) {
		ask(t, guest, number, uint16(1+number%2), []byte("silent query"))
	}
	for number := uint32(1000); number < 1010; number++ {
		ask(t, guest, number, agentv1.OverUDP, []byte("of a service"))
		if d := answer(t, guest); d.Flow != number {
			t.Errorf("answered %d, want %d", d.Flow, number)
		}
	}
	guest.Close()
	ended(t, end)

	s := &relay{dial: namespace(t), patience: time.Millisecond}
	for _, over := range []uint16{agentv1.OverUDP, agentv1.OverTCP} {
		_, err := s.ask(t.Context(), agentv1.Datagram{Port: over, Data: []byte("silent query")})
		if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("over %d: got %v, want a timeout", over, err)
		}
	}
}

// TestHostileGuest checks that a wrong stream ends, that the name server's address is the only one, and that a guest that
// reads no answers keeps a bounded number of queries.
func TestHostileGuest(t *testing.T) {
	for _, over := range []uint16{0, 3, 53, 0xffff} {
		guest, end := serve(t, nil)
		ask(t, guest, 1, over, []byte("of a service"))
		if err := ended(t, end); err == nil {
			t.Errorf("the transport %d: no error", over)
		}
		guest.Close()
	}
	dials := make(chan netip.AddrPort, 10*agentv1.MaxQueries)
	guest, end := serve(t, func(_ context.Context, to netip.AddrPort, _ bool) (net.Conn, error) {
		dials <- to
		return nil, unix.ECONNREFUSED
	})
	if err := guest.SetWriteDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	frame := append(make([]byte, agentv1.DatagramHeader), "of a service"...)
	agentv1.PutDatagram(frame, 1, agentv1.OverUDP, 12)
	sent := 0
	for ; sent < cap(dials); sent++ {
		if _, err := guest.Write(frame); err != nil {
			break
		}
	}
	if sent > 2*agentv1.MaxQueries+4096/len(frame) || len(dials) > agentv1.MaxQueries {
		t.Errorf("%d queries were read and %d sent on, want at most %d", sent, len(dials), agentv1.MaxQueries)
	}
	guest.Close()
	ended(t, end)
	for close(dials); len(dials) > 0; {
		if to := <-dials; to.String() != "127.0.0.11:53" {
			t.Errorf("a query went to %s", to)
		}
	}
}
