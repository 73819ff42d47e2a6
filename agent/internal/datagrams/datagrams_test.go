package datagrams

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

var hosts = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback(), netip.MustParseAddr("127.0.0.3")}

// serve serves a stream and returns its other end.
func serve(t *testing.T) net.Conn {
	t.Helper()
	host, guest := net.Pipe()
	done := make(chan struct{})
	go func() { defer close(done); Serve(guest, hosts) }()
	t.Cleanup(func() {
		host.Close()
		select {
		case <-done:
		case <-time.After(testdeadline.For(10 * time.Second)):
			t.Error("it does not end")
		}
	})
	return host
}

// echo sends received datagrams back from an address, and reports their senders.
func echo(t *testing.T, address string) (port uint16, from chan netip.AddrPort) {
	t.Helper()
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	from = make(chan netip.AddrPort, 10*agentv1.MaxFlows)
	go func() {
		buf := make([]byte, agentv1.MaxDatagram)
		for {
			n, who, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			from <- who.(*net.UDPAddr).AddrPort()
			_, _ = conn.WriteTo(buf[:n], who)
		}
	}()
	return uint16(conn.LocalAddr().(*net.UDPAddr).Port), from
}

func send(t *testing.T, host net.Conn, flow uint32, port uint16, data []byte) {
	t.Helper()
	if err := host.SetDeadline(time.Now().Add(testdeadline.For(10 * time.Second))); err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, agentv1.DatagramHeader+len(data))
	agentv1.PutDatagram(frame, flow, port, len(data))
	copy(frame[agentv1.DatagramHeader:], data)
	if _, err := host.Write(frame); err != nil {
		t.Fatal(err)
	}
}

func answer(t *testing.T, host net.Conn) agentv1.Datagram {
	t.Helper()
	d, err := agentv1.ReadDatagram(host, make([]byte, agentv1.MaxDatagram))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestServe: datagrams of every size are carried in both directions, with one socket per flow.
func TestServe(t *testing.T) {
	t.Parallel()
	host := serve(t)
	port, from := echo(t, "127.0.0.1:0")
	for flow, size := range []int{0, 1, 1472, 65507} {
		for range 2 {
			sent := bytes.Repeat([]byte{'x'}, size)
			send(t, host, uint32(flow), port, sent)
			if d := answer(t, host); d.Flow != uint32(flow) || d.Port != port || !bytes.Equal(d.Data, sent) {
				t.Errorf("flow %d: an answer of %d bytes in flow %d", flow, len(d.Data), d.Flow)
			}
		}
		if first, second := <-from, <-from; first != second {
			t.Errorf("one flow comes from %v and %v", first, second)
		}
	}
	send(t, host, 1, 0, nil)
	send(t, host, 1000, 0, nil)
	send(t, host, 1, port, []byte("anew"))
	if d := answer(t, host); d.Flow != 1 || string(d.Data) != "anew" {
		t.Errorf("after its end: %v", d)
	}
}

// TestHosts: a listener on only one address is found, even by the first datagram.
func TestHosts(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"[::1]:0", "127.0.0.3:0"} {
		host := serve(t)
		port, _ := echo(t, at)
		send(t, host, 1, port, []byte("who is there"))
		if d := answer(t, host); string(d.Data) != "who is there" {
			t.Errorf("%s: %q", at, d.Data)
		}
	}
	// A port without any listener does not disturb other flows.
	host := serve(t)
	port, _ := echo(t, "127.0.0.1:0")
	for range 10 {
		send(t, host, 1, 1, []byte("nobody"))
	}
	send(t, host, 2, port, []byte("somebody"))
	if d := answer(t, host); d.Flow != 2 {
		t.Errorf("%v", d)
	}
}

// TestManyFlows: flows beyond the bound are dropped until another has ended.
func TestManyFlows(t *testing.T) {
	t.Parallel()
	host := serve(t)
	port, _ := echo(t, "127.0.0.1:0")
	for flow := range uint32(agentv1.MaxFlows) {
		send(t, host, flow, port, []byte("x"))
		if d := answer(t, host); d.Flow != flow {
			t.Fatalf("flow %d instead of %d", d.Flow, flow)
		}
	}
	send(t, host, agentv1.MaxFlows, port, []byte("one more"))
	send(t, host, 7, 0, nil)
	send(t, host, agentv1.MaxFlows+1, port, []byte("instead"))
	if d := answer(t, host); d.Flow != agentv1.MaxFlows+1 {
		t.Errorf("flow %d", d.Flow)
	}
}
