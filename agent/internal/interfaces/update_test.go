package interfaces

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/boot"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/card"
)

// guest is a network namespace with interfaces that stand for a VM's cards.
type guest struct {
	t *testing.T
	*Cards
}

// newGuest enters a namespace with that many further cards. The test's goroutine must not end before the test.
func newGuest(t *testing.T, further int) guest {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, for a network namespace")
	}
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("sysfs", "/sys", "sysfs", 0, ""),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	g := guest{t: t}
	g.ip("link add eth0 type veth peer name peer0")
	g.ip("link set peer0 up")
	for i := range further {
		name := string(rune('1' + i))
		g.ip("link add eth" + name + " address " + card.MAC(i) + " type veth peer name peer" + name)
		g.ip("link set peer" + name + " up")
	}
	first, err := net.InterfaceByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	g.Cards = New(boot.Interface{Index: first.Index, Name: first.Name})
	return g
}

func (g guest) ip(command string) string {
	g.t.Helper()
	out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
	if err != nil {
		g.t.Fatalf("ip %s: %v: %s", command, err, out)
	}
	return string(out)
}

func (g guest) update(wanted ...*agentv1.Network) {
	g.t.Helper()
	if err := g.Update(wanted); err != nil {
		g.t.Fatal(err)
	}
}

// shows checks that an ip command shows all of the words, and none of those with a minus.
func (g guest) shows(command string, words ...string) {
	g.t.Helper()
	got := g.ip(command)
	for _, w := range words {
		without, not := strings.CutPrefix(w, "-")
		if strings.Contains(got, without) == not {
			g.t.Errorf("ip %s: want %q in\n%s", command, w, got)
		}
	}
}

func network(name, address, gateway string) *agentv1.Network {
	n := &agentv1.Network{Name: name, MAC: "02:00:00:00:00:0" + name[len(name)-1:], MTU: 1400, Addresses: []string{address}}
	if gateway != "" {
		n.Routes = []agentv1.Route{{Destination: "0.0.0.0/0", Gateway: gateway}}
	}
	return n
}

// TestUpdate checks that interfaces come, change and go, and that those without a change keep their state.
func TestUpdate(t *testing.T) {
	g := newGuest(t, 2)
	first := network("eth0", "10.1.1.2/24", "10.1.1.1")
	first.Addresses = append(first.Addresses, "10.1.1.3/24", "fd00:1::2/64")
	first.Neighbours = []agentv1.Neighbour{{Address: "10.1.1.9", MAC: "02:00:00:00:00:99"}}
	g.update(first)
	g.shows("addr show dev eth0", "02:00:00:00:00:00", "mtu 1400", "10.1.1.2/24", "10.1.1.3/24", "fd00:1::2/64", ",UP")
	g.shows("route", "default via 10.1.1.1 dev eth0")
	g.shows("neigh show dev eth0", "10.1.1.9 lladdr 02:00:00:00:00:99 PERMANENT")

	// The mark shows that the interface did not go down.
	g.ip("route add 10.99.0.0/16 dev eth0")
	second := network("net1", "10.2.1.2/24", "")
	g.update(first, second)
	g.shows("addr show dev net1", "02:00:00:00:00:01", "10.2.1.2/24", ",UP")
	g.shows("route", "default via 10.1.1.1 dev eth0", "10.99.0.0/16 dev eth0")
	if got := g.Further(); len(got) != 1 || got[0].Name != "net1" {
		t.Errorf("further interfaces: %+v", got)
	}

	moved, without := network("net1", "10.2.1.2/24", "10.2.1.1"), *first
	without.Routes = nil
	g.update(&without, moved)
	g.shows("route", "default via 10.2.1.1 dev net1", "10.99.0.0/16 dev eth0", "-10.1.1.1")
	g.update(first, second)
	g.shows("route", "default via 10.1.1.1 dev eth0", "10.99.0.0/16 dev eth0", "-10.2.1.1")

	g.update(nil, second)
	g.shows("addr show dev eth0", "-10.1.1", "-fd00", "-,UP")
	g.shows("route", "-eth0")
	g.shows("addr show dev net1", "10.2.1.2/24")

	g.update(network("eth0", "10.3.1.2/24", "10.3.1.1"), nil, network("eth1", "10.4.1.2/24", ""))
	g.shows("addr show dev eth0", "10.3.1.2/24", "-10.1.1")
	g.shows("addr show dev eth1", "10.4.1.2/24", "02:00:00:00:00:01")
	g.shows("addr show dev net1", "-10.2.1.2", "-,UP")
	g.update()
	g.shows("addr", "-10.3", "-10.4")
	if got := g.Further(); got != nil {
		t.Errorf("further interfaces after their end: %+v", got)
	}
}

// TestUpdateNames checks that an interface may have a name that the kernel gave to another card.
func TestUpdateNames(t *testing.T) {
	g := newGuest(t, 3)
	g.update(network("eth2", "10.1.1.2/24", ""), network("eth0", "10.2.1.2/24", ""), network("eth1", "10.3.1.2/24", ""))
	for name, address := range map[string]string{"eth2": "10.1.1.2/24", "eth0": "10.2.1.2/24", "eth1": "10.3.1.2/24"} {
		g.shows("addr show dev "+name, address)
	}
}

// TestUpdateAgain checks that Update mends the interfaces after an error.
func TestUpdateAgain(t *testing.T) {
	g := newGuest(t, 0)
	n := network("eth0", "10.1.1.2/24", "10.1.1.1")
	n.Routes = append(n.Routes, agentv1.Route{Destination: "nowhere"})
	for range 2 {
		if err := g.Update([]*agentv1.Network{n}); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("a wrong route: got %v, want %v", err, errdefs.ErrInvalidArgument)
		}
	}
	g.update(network("eth0", "10.5.1.2/24", "10.5.1.1"))
	g.shows("addr show dev eth0", "10.5.1.2/24", "-10.1.1.2")
	g.shows("route", "default via 10.5.1.1", "-10.1.1.1")
}

// TestUpdateRefused checks invalid interfaces. No card changes.
func TestUpdateRefused(t *testing.T) {
	t.Parallel()
	for name, wanted := range map[string][]*agentv1.Network{
		"too many": make([]*agentv1.Network, card.Most+2), "no name": {{}}, "the loopback": {{Name: "lo"}},
		"one name twice": {{Name: "eth0"}, {Name: "eth0"}},
	} {
		if err := New(boot.Interface{}).Update(wanted); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: got %v, want %v", name, err, errdefs.ErrInvalidArgument)
		}
	}
	if err := New(boot.Interface{}).Update([]*agentv1.Network{{Name: "eth0"}}); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("a VM without a card: got %v, want %v", err, errdefs.ErrNotFound)
	}
}

// TestConfigure checks that a pod's configuration replaces a rehearsal's, and no other.
func TestConfigure(t *testing.T) {
	g := newGuest(t, 0)
	rehearsal := &agentv1.Network{MAC: "02:00:00:00:00:01", Addresses: []string{"192.0.2.2/24"}, Gateways: []string{"192.0.2.1"}}
	same := *rehearsal
	same.MAC = "02:00:00:00:00:02"
	for _, step := range []struct {
		n         *agentv1.Network
		rehearsed bool
		want      []string
	}{
		{nil, false, []string{"-192.0.2.2"}},
		{rehearsal, false, []string{"192.0.2.2", "02:00:00:00:00:01"}},
		{&same, true, []string{"192.0.2.2", "02:00:00:00:00:02"}},
		{nil, false, []string{"192.0.2.2"}},
		{nil, true, []string{"-192.0.2.2"}},
		{network("eth0", "10.1.1.2/24", ""), true, []string{"10.1.1.2"}},
	} {
		if err := g.Configure(step.n, step.rehearsed); err != nil {
			t.Fatal(err)
		}
		g.shows("addr show dev eth0", step.want...)
	}
	if err := g.Configure(rehearsal, false); !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("configure a pod twice: got %v, want %v", err, errdefs.ErrAlreadyExists)
	}
}
