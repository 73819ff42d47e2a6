package adopt

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// listenIn opens a UDP socket in a namespace.
func (w world) listenIn(t *testing.T, address string) *net.UDPConn {
	t.Helper()
	var conn net.PacketConn
	err := Inside(w.ns, func() (err error) {
		conn, err = net.ListenPacket("udp4", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testdeadline.For(10 * time.Second))); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.UDPConn)
}

// readFile returns the content of a file of /proc in the namespace.
func (w world) readFile(t *testing.T, path string) (text string) {
	t.Helper()
	err := Inside(w.ns, func() error {
		b, err := os.ReadFile(path)
		text = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestResolver checks that docker's name server in a namespace reaches other ones although the VM has the interface, and
// that Leave undoes all of it.
func TestResolver(t *testing.T) {
	outside := newWorld(t)
	w := newWorld(t, "link set lo up")
	w.ip(t, "link add eth0 type veth peer name peer0")
	if err := moveTo(w, outside, "peer0"); err != nil {
		t.Fatal(err)
	}
	w.ip(t, "addr add 10.1.1.2/24 dev eth0", "link set eth0 up")
	outside.ip(t, "addr add 10.1.1.1/24 dev peer0", "link set peer0 up")
	// The runtime's poller must see the tap after it was created.
	fd, err := unix.FcntlInt(w.tap(t).Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	tap := os.NewFile(uintptr(fd), "tap")
	defer tap.Close()
	if r := w.join(t); r.Resolver || strings.Contains(w.run(t, "tc filter show dev eth0 ingress"), "protocol arp") {
		t.Error("a namespace without a name server has exemptions")
	}
	w.listenIn(t, "127.0.0.11:0")
	for range 2 {
		if r := w.join(t); !r.Resolver {
			t.Error("the name server is not found")
		}
	}
	if got := strings.Count(w.run(t, "tc filter show dev eth0 ingress"), "mirred"); got != 2 {
		t.Errorf("%d filters with actions after a repeated Join, want the copy and the redirection", got)
	}

	server := outside.listenIn(t, "10.1.1.1:53")
	client := w.listenIn(t, "0.0.0.0:0")
	if port := client.LocalAddr().(*net.UDPAddr).Port; port < 61440 {
		t.Errorf("the name server's sockets get port %d", port)
	}
	if _, err := client.WriteTo([]byte("question"), server.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2000)
	n, from, err := server.ReadFrom(buf)
	if err != nil || string(buf[:n]) != "question" {
		t.Fatalf("the server got %q, %v", buf[:n], err)
	}
	if _, err := server.WriteTo([]byte("answer"), from); err != nil {
		t.Fatal(err)
	}
	if n, _, err := client.ReadFrom(buf); err != nil || string(buf[:n]) != "answer" {
		t.Errorf("the name server got %q, %v", buf[:n], err)
	}

	// All else is the guest's: an answer to one of its ports, and the answers of neighbours.
	if _, err := server.WriteTo([]byte("for the guest"), &net.UDPAddr{IP: net.IPv4(10, 1, 1, 2), Port: 40000}); err != nil {
		t.Fatal(err)
	}
	sawARP, sawAnswer := false, false
	if err := tap.SetReadDeadline(time.Now().Add(testdeadline.For(10 * time.Second))); err != nil {
		t.Fatal(err)
	}
	for !sawARP || !sawAnswer {
		n, err := tap.Read(buf)
		if err != nil {
			t.Fatalf("the guest gets ARP: %v, the answer: %v; %v", sawARP, sawAnswer, err)
		}
		packet := string(buf[:n])
		sawARP = sawARP || n > 26 && packet[24:26] == "\x08\x06"
		sawAnswer = sawAnswer || strings.HasSuffix(packet, "for the guest")
		if strings.HasSuffix(packet, "answer") {
			t.Error("the guest gets the name server's answer")
		}
	}
	if err := Leave(w.ns); err != nil || w.queues(t) != "" {
		t.Errorf("left: %s, %v", w.queues(t), err)
	}
	if got := w.readFile(t, portRange); got != defaultPorts {
		t.Errorf("range of ports: got %q, want %q", got, defaultPorts)
	}
}

// TestResolverOfAnotherVM checks that another VM in the namespace gets the neighbours' answers in place of one that has
// ended, and that a range of a client's choice stays.
func TestResolverOfAnotherVM(t *testing.T) {
	w := newWorld(t, append([]string{"link set lo up"}, eth0...)...)
	if err := Inside(w.ns, func() error { return os.WriteFile(portRange, []byte("20000 30000"), 0) }); err != nil {
		t.Fatal(err)
	}
	w.listenIn(t, "127.0.0.11:0")
	tap := w.tap(t)
	w.join(t)
	tap.Close()
	w.tap(t)
	w.join(t)
	filters := w.run(t, "tc filter show dev eth0 ingress")
	if got := strings.Count(filters, "Mirror to device "+TapName(0)); got != 1 || strings.Count(filters, "mirred") != 2 {
		t.Errorf("filters: %s", filters)
	}
	if err := Leave(w.ns); err != nil || w.queues(t) != "" {
		t.Errorf("left: %s, %v", w.queues(t), err)
	}
	if got := w.readFile(t, portRange); got != "20000\t30000\n" {
		t.Errorf("range of ports: %q", got)
	}
}
