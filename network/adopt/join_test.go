package adopt

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/card"
	"github.com/bulkhead-project/bulkhead/network"
)

// eth0 are the commands for a first interface.
var eth0 = []string{
	"link add eth0 mtu 1400 address 02:00:00:00:00:01 type veth peer name peer0 address 02:00:00:00:01:01",
	"addr add 10.1.1.2/24 dev eth0", "addr add fd00:1::2/64 dev eth0 nodad", "link set eth0 up",
	"route add default via 10.1.1.1", "route add fd00:9::/64 via fd00:1::9",
	"neigh add 10.1.1.9 lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
}

func first() *agentv1.Network {
	return &agentv1.Network{
		Name: "eth0", MAC: "02:00:00:00:00:01", MTU: 1400, Addresses: []string{"10.1.1.2/24", "fd00:1::2/64"},
		Routes: []agentv1.Route{
			{Destination: "0.0.0.0/0", Gateway: "10.1.1.1"}, {Destination: "fd00:9::/64", Gateway: "fd00:1::9", Metric: 1024},
		},
		Neighbours: []agentv1.Neighbour{{Address: "10.1.1.9", MAC: "02:00:00:00:00:99"}},
	}
}

// TestJoin checks that the guest gets the settings of an interface, that Join can be repeated, and that Leave leaves the
// namespace as it was.
func TestJoin(t *testing.T) {
	w := newWorld(t, "link set lo up")
	if r := w.join(t); len(r.Interfaces) != 0 || len(r.Taps) != 0 || network.IPs(r.Interfaces...) != nil {
		t.Errorf("join a loopback alone: got %+v, want no interface", r)
	}
	if err := Leave(w.ns); err != nil {
		t.Errorf("leave a loopback alone: %v", err)
	}
	w.tap(t)
	w.ip(t, eth0...)
	for i := range 3 {
		r := w.join(t)
		if diff := cmp.Diff([]*agentv1.Network{first()}, r.Interfaces); diff != "" {
			t.Errorf("join %d (-want +got):\n%s", i, diff)
		}
		if diff := cmp.Diff([]string{"10.1.1.2", "fd00:1::2"}, network.IPs(r.Interfaces...)); diff != "" || len(r.Taps) != 0 {
			t.Errorf("join %d: %d taps; addresses (-want +got):\n%s", i, len(r.Taps), diff)
		}
		if !w.redirected(t, "eth0", TapName(0)) {
			t.Errorf("join %d: packets are not redirected", i)
		}
	}
	if link := w.run(t, "ip -o link show "+TapName(0)); !strings.Contains(link, " mtu 1400 ") || !strings.Contains(link, ",UP") {
		t.Errorf("the tap: %s", link)
	}
	for range 2 {
		if err := Leave(w.ns); err != nil {
			t.Fatal(err)
		}
		if got := w.queues(t); got != "" {
			t.Errorf("left: %s", got)
		}
	}
	if w.join(t); !w.redirected(t, "eth0", TapName(0)) {
		t.Error("join after leave: packets are not redirected")
	}
}

// TestRestart checks that another VM takes the place of one that ended without Leave.
func TestRestart(t *testing.T) {
	w := newWorld(t, eth0...)
	tap := w.tap(t)
	w.join(t)
	tap.Close()
	if _, err := Join(w.ns); err == nil {
		t.Error("join without a tap: no error")
	}
	w.tap(t)
	if w.join(t); !w.redirected(t, "eth0", TapName(0)) {
		t.Error("packets are not redirected to the new tap")
	}
	if f, err := MakeTap(w.ns, TapName(0)); err == nil {
		f.Close()
		t.Error("make a tap that another VM has: no error")
	}
	if err := Leave(w.ns); err != nil || w.queues(t) != "" {
		t.Errorf("left: %s, %v", w.queues(t), err)
	}
}

// TestLeaveAfterTheVM checks that Leave finds the redirections to a tap that is gone.
func TestLeaveAfterTheVM(t *testing.T) {
	w := newWorld(t, eth0...)
	tap := w.tap(t)
	w.join(t)
	tap.Close()
	if err := Leave(w.ns); err != nil || w.queues(t) != "" {
		t.Errorf("left: %s, %v", w.queues(t), err)
	}
}

// TestOthersFilters checks that queues and filters of other programs stay.
func TestOthersFilters(t *testing.T) {
	for _, kind := range []string{"ingress", "clsact"} {
		w := newWorld(t, eth0...)
		w.run(t, "tc qdisc add dev eth0 "+kind)
		w.run(t, "tc filter add dev eth0 ingress prio 7 u32 match u32 0 0 action mirred egress redirect dev peer0")
		before := w.queues(t) + w.run(t, "tc filter show dev eth0 ingress")
		w.tap(t)
		for range 2 {
			w.join(t)
			if got := w.run(t, "tc filter show dev eth0 ingress"); strings.Count(got, "Redirect to device "+TapName(0)) != 1 {
				t.Errorf("%s: filters %s", kind, got)
			}
		}
		if err := Leave(w.ns); err != nil {
			t.Fatal(err)
		}
		if got := w.queues(t) + w.run(t, "tc filter show dev eth0 ingress"); got != before {
			t.Errorf("%s: got %s, want %s", kind, got, before)
		}
	}
}

// names returns the names of a result's interfaces by card; a card without one is "-".
func names(r Result) (out []string) {
	for _, n := range r.Interfaces {
		if n == nil {
			out = append(out, "-")
		} else {
			out = append(out, n.Name)
		}
	}
	return out
}

func add(name string, number int) []string {
	return []string{
		fmt.Sprintf("link add %s type veth peer name peer%d", name, number), fmt.Sprintf("addr add 10.2.%d.2/24 dev %s", number, name),
		"link set " + name + " up",
	}
}

// TestCards checks that interfaces keep their cards while others come and go, and that further taps are made once.
func TestCards(t *testing.T) {
	w := newWorld(t)
	w.tap(t)
	check := func(what string, taps int, want ...string) {
		t.Helper()
		r := w.join(t)
		if diff := cmp.Diff(want, names(r)); diff != "" || len(r.Taps) != taps {
			t.Errorf("%s: got %d taps, want %d; interfaces (-want +got):\n%s", what, len(r.Taps), taps, diff)
		}
		for number, name := range want {
			if name != "-" && !w.redirected(t, name, TapName(number)) {
				t.Errorf("%s: packets of %s are not redirected to card %d", what, name, number)
			}
		}
	}
	w.ip(t, add("net1", 1)...)
	w.ip(t, "route add default via 10.2.1.1")
	check("one", 0, "net1")
	w.ip(t, add("eth0", 2)...)
	w.ip(t, add("net3", 3)...)
	check("two more", card.Most, "net1", "eth0", "net3")
	w.ip(t, "link del eth0")
	check("without the middle one", 0, "net1", "-", "net3")
	if link := w.run(t, "ip -o link show "+TapName(1)); strings.Contains(link, ",UP") {
		t.Errorf("a tap without an interface: %s", link)
	}
	w.ip(t, "link del net1")
	check("only the last", 0, "-", "-", "net3")
	w.ip(t, add("net5", 5)...)
	check("a new first", 0, "net5", "-", "net3")
	w.ip(t, "link set net3 down", "addr flush dev net3")
	check("one that is unused", 0, "net5")
	w.ip(t, add("net6", 6)...)
	w.ip(t, "link set net3 up")
	if got := names(w.join(t)); len(got) != 3 || got[0] != "net5" {
		t.Errorf("interfaces after one is used again: %q", got)
	}
	if err := Leave(w.ns); err != nil || w.queues(t) != "" {
		t.Errorf("left: %s, %v", w.queues(t), err)
	}
}

// TestFirst checks which interface becomes the first card: its addresses are the pod's.
func TestFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		want     string
		commands []string
	}{
		"eth0":             {"eth0 net1", append(append(add("net1", 1), "route add default via 10.2.1.1"), add("eth0", 2)...)},
		"a default route":  {"net2 net1", append(append(add("net1", 1), add("net2", 2)...), "route add default via 10.2.2.1")},
		"the oldest":       {"net2 net1", append(add("net2", 2), add("net1", 1)...)},
		"of the link only": {"net1", []string{"link add net1 type veth peer name p", "addr add 169.254.2.1/16 dev net1", "link set net1 up"}},
	} {
		w := newWorld(t, tc.commands...)
		w.tap(t)
		r := w.join(t)
		if got := strings.Join(names(r), " "); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
		if len(network.IPs(r.Interfaces...)) != 1 {
			t.Errorf("%s: addresses %q", name, network.IPs(r.Interfaces...))
		}
	}
}

// TestRefused checks that the error names the interface that a VM cannot have, and that no tap is left.
func TestRefused(t *testing.T) {
	var many []string
	for i := range card.Most + 2 {
		many = append(many, add(fmt.Sprintf("net%d", i), i)...)
	}
	for name, tc := range map[string]struct {
		want     string
		commands []string
	}{
		"too many": {"net8 is one too many: a pod has at most 8", many},
		"a tunnel": {"tun9 is of type", []string{
			"tuntap add tun9 mode tun", "addr add 10.1.2.1/24 dev tun9", "link set tun9 up",
		}},
	} {
		w := newWorld(t, tc.commands...)
		w.tap(t)
		r, err := Join(w.ns)
		if !errors.Is(err, errInterface) || !strings.Contains(err.Error(), tc.want) || r.Taps != nil {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
		if got := w.run(t, "ip -o link"); strings.Contains(got, TapName(1)) || w.queues(t) != "" {
			t.Errorf("%s: left %s", name, got)
		}
	}
	w := newWorld(t, append(add("net1", 1), add("net2", 2)...)...)
	w.tap(t)
	taken, err := MakeTap(w.ns, TapName(4))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if _, err := Join(w.ns); err == nil || !strings.Contains(err.Error(), TapName(4)) {
		t.Errorf("the name of a card is taken: %v", err)
	}
	if got := w.run(t, "ip -o link"); strings.Contains(got, TapName(1)) {
		t.Errorf("left %s", got)
	}
	if _, err := MakeTap(w.ns, "a name that no device can have"); err == nil {
		t.Error("a tap with a wrong name: no error")
	}
	if f, err := os.Open("/dev/null"); err == nil {
		defer f.Close()
		if _, err := Join(f); err == nil {
			t.Error("join a file that is not a namespace: no error")
		}
	}
}
