package clients

import (
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/test/testhost"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// TestTrixie plays the lives of containers with the clients of Debian 13. Each day is the turn of one client. It is not the
// client that Debian 12's tests play on that day.
func TestTrixie(t *testing.T) {
	if testing.Short() {
		t.Skip("boots VMs")
	}
	if !testhost.Inside() {
		t.Skip("only root can create a host")
	}
	for turn, c := range []struct {
		name string
		play func(t *testing.T, s system)
	}{{"docker", playDocker}, {"containerd", playContainerd}, {"podman", playPodman}} {
		t.Run(c.name, testturn.In(turn, 3, func(t *testing.T) {
			prepare(t)
			startEngine(t) // the tree has no QEMU
			c.play(t, newTree(t, "trixie"))
		}))
	}
}
