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
)

// named returns interfaces with these names.
func named(names ...string) (out []agentv1.Network) {
	for _, name := range names {
		out = append(out, agentv1.Network{Name: name})
	}
	return out
}

func TestValidateCards(t *testing.T) {
	t.Parallel()
	for names, valid := range map[string]bool{
		"net1": true, "eth2 eth1": true, "fifteen-letters": true, "1 2 3 4 5 6 7": true,
		"": false, ".": false, "..": false, "all": false, "default": false, "lo": false, "eth0": false, "net1 net1": false,
		"sixteen--letters": false, "a/b": false, "a:b": false, "1 2 3 4 5 6 7 8": false,
	} {
		if err := validateCards(named(strings.Split(names, " ")...)); (err == nil) != valid || err != nil && !errors.Is(err,
			errdefs.ErrInvalidArgument) {
			t.Errorf("%q: %v", names, err)
		}
	}
	if err := SetCards(nil); err != nil {
		t.Errorf("no card: %v", err)
	}
}

// TestNameCards: two cards can swap names.
func TestNameCards(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for a network namespace")
	}
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ip", "link", "add", "eth1", "type", "veth", "peer", "name", "eth2").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	index := func(name string) int {
		t.Helper()
		l, err := net.InterfaceByName(name)
		if err != nil {
			t.Fatal(err)
		}
		return l.Index
	}
	cards := []boot.Interface{{Index: index("eth1"), Name: "eth1"}, {Index: index("eth2"), Name: "eth2"}}
	if err := nameCards(cards, named("eth2", "eth1")); err != nil {
		t.Fatal(err)
	}
	if index("eth2") != cards[0].Index || index("eth1") != cards[1].Index || cards[0].Name != "eth2" {
		t.Errorf("%+v", cards)
	}
	if err := nameCards(cards[:1], named("lo")); !errors.Is(err, unix.EEXIST) {
		t.Errorf("a name that is taken: %v", err)
	}
}
