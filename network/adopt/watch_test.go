package adopt

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/network/adopt/inside"
)

// TestWatch checks that each kind of change is reported, and that the channel is closed at the end.
func TestWatch(t *testing.T) {
	w := newWorld(t)
	limit := testdeadline.Context(t, 10*time.Second)
	ctx, cancel := context.WithCancel(limit)
	defer cancel()
	var socket *os.File
	err := Inside(w.ns, func() (err error) {
		socket, err = inside.Listen()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	changes := inside.Changes(ctx, socket)
	wait := func(what string) {
		t.Helper()
		select {
		case <-changes:
		case <-limit.Done():
			t.Fatalf("%s: no report", what)
		}
	}
	w.ip(t, "link add eth0 type veth peer name peer0")
	wait("a new interface")
	w.ip(t, "link set eth0 up", "link set peer0 up")
	wait("an interface that is up")
	w.ip(t, "addr add 10.1.1.2/24 dev eth0")
	wait("an address")
	w.ip(t, "route add 10.9.0.0/16 via 10.1.1.1")
	wait("a route")
	w.ip(t, "link del eth0")
	wait("the end of an interface")
	cancel()
	for range changes { // until it is closed
	}
}
