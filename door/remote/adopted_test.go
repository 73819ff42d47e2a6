package remote_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	"github.com/bulkhead-project/bulkhead/door/remote/client"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
	"github.com/bulkhead-project/bulkhead/internal/test/testremote"
	"github.com/bulkhead-project/bulkhead/network/adopt"
)

// place is a network namespace that a VM takes over. The test's process holds its tap.
type place struct {
	world testnet.World
	ns    *os.File
	tap   *os.File
	own   *enginev1.Holder
}

// adopted returns a namespace with the tap of a VM, before its interface is up.
func adopted(t *testing.T) *place {
	t.Helper()
	p := &place{world: testnet.New(t, "10.77.0.2", "10.77.0.1", exec.Command("sleep", "infinity"))}
	p.in(t, "link set tohost0 down")
	p.in(t, "addr flush dev tohost0")
	p.in(t, "link set tohost0 name eth0") // as most clients do
	var err error
	if p.ns, err = os.Open(strings.TrimPrefix(p.world.Enter()[1], "--net=")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.ns.Close() })
	if p.tap, err = adopt.MakeTap(p.ns, adopt.TapName(0)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.tap.Close() })
	id, err := procid.Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	p.own = &enginev1.Holder{Pid: int32(id.PID), Started: id.Start}
	return p
}

// request asks for the network in a request.
func (p *place) request(t *testing.T, r *enginev1.StartRequest) {
	t.Helper()
	r.Network, r.Holder, r.TapFd = "adopted", p.own, int32(p.tap.Fd())
}

// in runs ip in the namespace.
func (p *place) in(t *testing.T, command string) {
	t.Helper()
	testnet.Run(t, append(append(p.world.Enter(), "ip"), strings.Fields(command)...)...)
}

// connect brings the first interface up.
func (p *place) connect(t *testing.T) {
	t.Helper()
	for _, command := range []string{"addr add 10.77.0.2/24 dev eth0", "link set eth0 up", "route add default via 10.77.0.1"} {
		p.in(t, command)
	}
}

// further adds an interface.
func (p *place) further(t *testing.T) {
	t.Helper()
	p.in(t, "link add net1 mtu 1300 type veth peer name tonet1 netns "+namespaceOf(p.world.EnterOutside()))
	p.in(t, "addr add 10.78.0.2/24 dev net1")
	p.in(t, "link set net1 up")
	p.world.Outside(t, "addr", "add", "10.78.0.1/24", "dev", "tonet1")
	p.world.Outside(t, "link", "set", "tonet1", "up")
}

// namespaceOf returns the process in the path of a namespace.
func namespaceOf(enter []string) string {
	return strings.TrimSuffix(strings.TrimPrefix(enter[1], "--net=/proc/"), "/ns/net")
}

// disconnect removes the first interface.
func (p *place) disconnect(t *testing.T) {
	t.Helper()
	p.in(t, "link del eth0")
}

// update joins the interfaces that are there now, and sends them to the guest.
func (p *place) update(t *testing.T, c *testremote.Client, pod testremote.Pod) {
	t.Helper()
	joined, err := adopt.Join(p.ns)
	if err != nil {
		t.Fatal(err)
	}
	r := &enginev1.UpdateNetworkRequest{Id: pod.GetId(), Interfaces: client.Interfaces(joined.Interfaces), Holder: p.own}
	for _, tap := range joined.Taps {
		r.TapFds = append(r.TapFds, int32(tap.Fd()))
	}
	began := time.Now()
	if err := errors.Join(c.UpdateNetwork(t.Context(), r), joined.Close()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d interfaces and %d taps took %v", len(joined.Interfaces), len(joined.Taps), time.Since(began))
}

// answers checks that the guest refuses connections to a port that no process listens on: packets go both ways.
func (p *place) answers(t *testing.T, address string) {
	t.Helper()
	err := adopt.Inside(p.outside(t), func() error {
		// Only the socket must be created in this thread.
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		limit := unix.NsecToTimeval(testdeadline.For(20 * time.Second).Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
			return err
		}
		return unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: [4]byte(net.ParseIP(address).To4())})
	})
	if !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("connect to %s: got %v, want %v", address, err, unix.ECONNREFUSED)
	}
}

// outside opens the namespace at the other end.
func (p *place) outside(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%s/ns/net", namespaceOf(p.world.EnterOutside())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// leave checks that the namespace is as it was before.
func (p *place) leave(t *testing.T) {
	t.Helper()
	if err := adopt.Leave(p.ns); err != nil {
		t.Error(err)
	}
	out, err := exec.Command(p.world.Enter()[0], append(p.world.Enter()[1:], "tc", "qdisc", "show")...).Output()
	if err != nil || strings.Contains(string(out), "ingress") {
		t.Errorf("left in the namespace: %s, %v", out, err)
	}
}
