package networks

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/network/cni"
)

// Each kind of network has a device, and a VM's device shows its kind.
func TestNetworkDevices(t *testing.T) {
	for kind, want := range map[network.Kind]network.Kind{
		network.KindNone: network.KindNone, network.KindUser: network.KindUser,
		network.KindHostLoopback: network.KindHostLoopback, network.KindRestricted: network.KindUser,
		network.KindCNI: network.KindCNI, network.KindAdopted: network.KindAdopted,
	} {
		m := hypervisor.VMConfig{
			Kernel: "k", Initrd: "i", Accel: hypervisor.TCG, VCPUs: 1, Memory: 256, MaxMem: 256, Network: DeviceOf(kind),
		}
		if err := m.Validate(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if got := asked(KindOf(m)); got != want {
			t.Errorf("%s: %s", kind, got)
		}
	}
}

// reduced is a network that may be a reduced form of the requested kind.
type reduced struct {
	network.None
	kind          network.Kind
	closed, freed int
}

func (r *reduced) Kind() (network.Kind, string) { return r.kind, "" }
func (r *reduced) Close()                       { r.closed++ }
func (r *reduced) Release(context.Context) error {
	r.freed++
	return nil
}

// TestGetProbesAgain checks that a kind's network is opened once, and that a reduced one is retried after a minute.
// Replaced networks are closed and released too.
func TestGetProbesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened []*reduced
		kinds := []network.Kind{network.KindRestricted, network.KindUser}
		n := New(func(network.Kind) (network.Provider, error) {
			if len(opened) == len(kinds) {
				return nil, errors.New("no network")
			}
			opened = append(opened, &reduced{kind: kinds[len(opened)]})
			return opened[len(opened)-1], nil
		})
		get := func(want int) {
			t.Helper()
			for _, kind := range []network.Kind{network.KindUser, network.KindRestricted} {
				if p, err := n.Of(kind); err != nil || len(opened) != want || p != network.Provider(opened[want-1]) {
					t.Errorf("%s: %v, %v, %d opened", kind, p, err, len(opened))
				}
			}
		}
		get(1)
		time.Sleep(time.Minute - 1)
		get(1)
		time.Sleep(time.Nanosecond)
		get(2)
		time.Sleep(time.Hour)
		get(2)
		if _, err := n.Get(network.KindNone); err == nil {
			t.Error("a network that cannot be opened")
		}
		if err := n.Release(t.Context()); err != nil {
			t.Error(err)
		}
		n.Close()
		for i, p := range opened {
			if p.closed != 1 || p.freed != 1 {
				t.Errorf("network %d is closed %d and released %d times", i, p.closed, p.freed)
			}
		}
	})
}

// TestOwn checks that an instance opens the kinds that it has.
func TestOwn(t *testing.T) {
	open := Own(t.TempDir(), nil)
	if p, err := open(network.KindNone); err != nil || p != (network.None{}) {
		t.Errorf("network none: %v, %v", p, err)
	}
	if p, err := open(network.KindAdopted); err != nil || p != (network.Adopted{}) {
		t.Errorf("network adopted: %v, %v", p, err)
	}
	for _, kind := range []network.Kind{network.KindRestricted, network.KindCNI, "bridge", ""} {
		if p, err := open(kind); err == nil {
			t.Errorf("%q: %v", kind, p)
		}
	}
	if p, err := Own(t.TempDir(), &cni.Options{})(network.KindCNI); err != nil {
		t.Error(err)
	} else if kind, _ := p.Kind(); kind != network.KindCNI {
		t.Errorf("plugins: %s", kind)
	}
	if p, err := Own("/dev/null", nil)(network.KindUser); err == nil {
		t.Errorf("below a file: %v", p)
	}
}
