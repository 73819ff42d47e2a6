package cni

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/card"
)

// inNamespace is a plugin that runs ip in the pod's namespace after it has made eth0.
func inNamespace(commands ...string) string {
	first := []string{"link add eth0 type veth peer name other", "addr add 10.1.1.1/24 dev eth0", "link set eth0 up"}
	return `cd /; [ $CNI_COMMAND = DEL ] || nsenter --net=$CNI_NETNS ip -batch - <<END
` + strings.Join(append(first, commands...), "\n") + "\nEND\necho '{\"cniVersion\": \"1.0.0\"}'"
}

// TestFurther: each interface that plugins have made and brought up is a card of the guest, in the order of creation.
// The pod's own addresses are the first interface's. Nothing is left after the delete.
func TestFurther(t *testing.T) {
	n := newNode(t)
	seen := filepath.Join(t.TempDir(), "seen")
	n.script(t, inNamespace(
		"link add net1 mtu 1300 address 02:00:00:00:00:01 type veth peer name peer1", "addr add 10.1.2.1/24 dev net1",
		"addr add fd00:1::1/64 dev net1 nodad", "link set net1 up", "route add 10.9.0.0/16 via 10.1.2.9",
		"route add fd00:9::/64 via fd00:1::9 metric 7",
		"link add bare address 02:00:00:00:00:02 type veth peer name peer2", "link set bare up",
		"link add down type veth peer name peer3",
		"link add bond9 address 02:00:00:00:00:03 type bridge", "link add port type veth peer name peer4", "link set port master bond9 up",
		"link set bond9 up")+`
		[ $CNI_COMMAND = ADD ] || nsenter --net=$CNI_NETNS ip -br link >`+seen)
	r := request()
	a, err := n.add(t, r)
	if err != nil {
		t.Fatal(err)
	}
	var got []agentv1.Network
	for i, c := range a.Cards {
		got = append(got, *c.Guest)
		joined(t, r.ID, c.Guest.Name, fmt.Sprintf("bulkhead%d", i+1))
	}
	want := []agentv1.Network{
		{
			Name: "net1", MAC: "02:00:00:00:00:01", MTU: 1300, Addresses: []string{"10.1.2.1/24", "fd00:1::1/64"},
			Routes: []agentv1.Route{
				{Destination: "10.9.0.0/16", Gateway: "10.1.2.9"}, {Destination: "fd00:9::/64", Gateway: "fd00:1::9", Metric: 7},
			},
		},
		{Name: "bare", MAC: "02:00:00:00:00:02", MTU: 1500},
		{Name: "bond9", MAC: "02:00:00:00:00:03", MTU: 1500},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"10.1.1.1"}, a.IPs); diff != "" {
		t.Error(diff)
	}
	if err := n.Detach(t.Context(), r.ID); err != nil {
		t.Fatal(err)
	}
	links, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(links)) {
		if ours := strings.HasPrefix(line, "tap0") || strings.HasPrefix(line, "bulkhead"); ours && strings.Contains(line, ",UP") {
			t.Errorf("while the addresses are released: %s", line)
		}
	}
	if count := strings.Count(string(links), "\nbulkhead"); count != 3 {
		t.Errorf("%d taps in\n%s", count, links)
	}
	n.nothingLeft(t)
}

// joined checks that packets go between two interfaces in both directions, and that the other is up with the MTU of the
// one.
func joined(t *testing.T, pod, one, other string) {
	t.Helper()
	ip := func(command string) string {
		t.Helper()
		out, err := exec.Command("nsenter", append([]string{"--net=" + namespace(pod)}, strings.Fields(command)...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
		return string(out)
	}
	for from, to := range map[string]string{one: other, other: one} {
		if got := ip("tc filter show ingress dev " + from); !strings.Contains(got, "Egress Redirect to device "+to) {
			t.Errorf("from %s: %s", from, got)
		}
	}
	mtu := func(name string) string {
		_, rest, _ := strings.Cut(ip("ip -o link show up dev "+name), " mtu ")
		value, _, _ := strings.Cut(rest, " ")
		return value
	}
	if want := mtu(one); mtu(other) != want || want == "" {
		t.Errorf("MTU of %s: %q, of %s: %q", one, want, other, mtu(other))
	}
}

// TestFurtherRefused: the error names the interface that a VM cannot have, and nothing is left.
func TestFurtherRefused(t *testing.T) {
	var many []string
	for i := range card.Most + 1 {
		many = append(many, fmt.Sprintf("link add net%d type veth peer name peer%d", i, i), fmt.Sprintf("link set net%d up", i))
	}
	for name, tc := range map[string]struct {
		want     string
		commands []string
	}{
		"too many":            {"net7 is one too many: a pod has at most 8", many},
		"a stacked interface": {"net1 is stacked on another", []string{"link add link eth0 name net1 type macvlan", "link set net1 up"}},
		"a tunnel": {"tun9 is of type", []string{
			"tuntap add tun9 mode tun", "addr add 10.1.2.1/24 dev tun9", "link set tun9 up",
		}},
		"a rule": {"routing rule", []string{
			"link add net1 type veth peer name peer1", "link set net1 up", "rule add from 10.1.2.1 table 100",
		}},
		"the name of a card": {"make tap bulkhead1", []string{"link add bulkhead1 type veth peer name peer1", "link set bulkhead1 up"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.script(t, inNamespace(tc.commands...))
			r := request()
			a, err := n.add(t, r)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") || a.Cards != nil {
				t.Errorf("%v, want %q", err, tc.want)
			}
			if err := n.Detach(t.Context(), r.ID); err != nil {
				t.Error(err)
			}
			n.nothingLeft(t)
		})
	}
}
