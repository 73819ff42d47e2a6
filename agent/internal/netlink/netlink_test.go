package netlink

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLink sets up one end of a pair of interfaces in a network namespace of
// its own and has iproute2 read it.
func TestLink(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for a network namespace")
	}
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	ip := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("ip %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	ip("link", "add", "eth9", "type", "veth", "peer", "name", "peer9")
	ip("link", "set", "peer9", "up")
	eth, err := net.InterfaceByName("eth9")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mac, _ := net.ParseMAC("52:54:00:aa:bb:cc")
	for _, err := range []error{
		c.Link(1, nil, 0, true),
		c.Link(eth.Index, nil, 0, false),
		c.Link(eth.Index, mac, 1300, true),
		c.Address(eth.Index, netip.MustParsePrefix("10.1.2.3/24")),
		c.Address(eth.Index, netip.MustParsePrefix("10.1.2.3/24")), // again
		c.Address(eth.Index, netip.MustParsePrefix("fd00::3/64")),
		c.DefaultRoute(eth.Index, netip.MustParseAddr("192.0.2.1")), // outside the network
		c.DefaultRoute(eth.Index, netip.MustParseAddr("fd00::1")),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	link := ip("addr", "show", "dev", "eth9")
	for _, want := range []string{"52:54:00:aa:bb:cc", "mtu 1300", "UP", "10.1.2.3/24", "fd00::3/64"} {
		if !strings.Contains(link, want) {
			t.Errorf("no %s in %s", want, link)
		}
	}
	if got := ip("route"); !strings.Contains(got, "default via 192.0.2.1 dev eth9") {
		t.Errorf("routes: %s", got)
	}
	if got := ip("-6", "route"); !strings.Contains(got, "default via fd00::1 dev eth9") {
		t.Errorf("routes: %s", got)
	}
	if got := ip("addr", "show", "dev", "lo"); !strings.Contains(got, "127.0.0.1/8") {
		t.Errorf("loopback: %s", got)
	}
	for _, err := range []error{
		c.RemoveDefaultRoute(eth.Index, netip.MustParseAddr("192.0.2.1")),
		c.RemoveDefaultRoute(eth.Index, netip.MustParseAddr("fd00::1")),
		c.RemoveAddress(eth.Index, netip.MustParsePrefix("10.1.2.3/24")),
		c.RemoveAddress(eth.Index, netip.MustParsePrefix("fd00::3/64")),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	for _, list := range []string{ip("addr", "show", "dev", "eth9"), ip("route"), ip("-6", "route")} {
		for _, gone := range []string{"10.1.2.3", "fd00::3/64", "default via"} {
			if strings.Contains(list, gone) {
				t.Errorf("%s is left in %s", gone, list)
			}
		}
	}
	if err := c.RemoveAddress(eth.Index, netip.MustParsePrefix("10.1.2.3/24")); err == nil {
		t.Error("a missing address")
	}
	if err := c.Link(4711, nil, 0, true); err == nil {
		t.Error("a missing interface")
	}
}

func TestAck(t *testing.T) {
	t.Parallel()
	message := func(kind uint16, seq uint32, errno int32) []byte {
		m := newMessage(kind, 0)
		m.add([]byte{byte(errno), byte(errno >> 8), byte(errno >> 16), byte(errno >> 24)})
		return m.bytes(seq)
	}
	for name, tc := range map[string]struct {
		b    []byte
		want unix.Errno
		ok   bool
	}{
		"empty":        {nil, 0, false},
		"success":      {message(unix.NLMSG_ERROR, 7, 0), 0, true},
		"error":        {message(unix.NLMSG_ERROR, 7, -int32(unix.EPERM)), unix.EPERM, true},
		"another's":    {message(unix.NLMSG_ERROR, 6, 0), 0, false},
		"after others": {append(message(unix.RTM_NEWLINK, 0, 0), message(unix.NLMSG_ERROR, 7, 0)...), 0, true},
		"bad length":   {[]byte{1, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0}, unix.EPROTO, true},
	} {
		if got, ok := ack(tc.b, 7); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %v, %t", name, got, ok)
		}
	}
}
