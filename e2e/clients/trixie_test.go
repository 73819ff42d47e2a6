package clients

import (
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/test/testhost"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// TestTrixie plays the lives of containers with the clients of Debian 13. Each day is the turn of one client.
func TestTrixie(t *testing.T) {
	if testing.Short() {
		t.Skip("boots VMs")
	}
	if !testturn.Long() {
		t.Skip("a scenario of podman 5.4 does not pass yet (kube play); make test-long runs it")
	}
	if !testhost.Inside() {
		t.Skip("only root can create a host")
	}
	for turn, c := range []struct {
		name string
		play func(t *testing.T, s system)
	}{{"podman", playPodman}, {"docker", playDocker}, {"containerd", playContainerd}} {
		t.Run(c.name, testturn.In(turn, 3, func(t *testing.T) {
			prepare(t)
			c.play(t, newTree(t, "trixie"))
		}))
	}
}
