package engine

import (
	"context"
	"os"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/card"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/tap"
	"github.com/bulkhead-project/bulkhead/network"
)

func (s scriptedExt) UpdateNetwork(ctx context.Context, r *shimv1.UpdateNetworkRequest) (*shimv1.UpdateNetworkResponse, error) {
	return &shimv1.UpdateNetworkResponse{}, s.call(ctx, "UpdateNetwork", " "+string(r.GetInterfaces())+" "+string(rune('0'+r.GetTaps())))
}

// TestUpdateNetwork checks that the shim gets taps before the interfaces, and that the record shows the pod's addresses
// only after the guest has them.
func TestUpdateNetwork(t *testing.T) {
	t.Parallel()
	file, err := tap.Idle()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() }) // after the parallel subtests
	own, err := procid.Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	held, wrong := network.Held{Holder: own, FD: int(file.Fd())}, network.Held{Holder: own, FD: 1 << 20}
	two := []*agentv1.Network{nil, {Name: "eth1", Addresses: []string{"10.1.1.2/24", "fd00::2/64"}}, {Name: "eth2"}}
	const raw = `{"interfaces":[null,{"name":"eth1","mac":"","addresses":["10.1.1.2/24","fd00::2/64"],"gateways":null},` +
		`{"name":"eth2","mac":"","addresses":null,"gateways":null}]}`
	for name, tc := range map[string]struct {
		kind   hypervisor.Network
		update NetworkUpdate
		errs   errs
		code   codes.Code
		ips    []string
		cards  []string
		calls  []string
	}{
		"no change": {update: NetworkUpdate{}, calls: []string{`UpdateNetwork {"interfaces":null} 0`}},
		"interfaces": {
			update: NetworkUpdate{Interfaces: two}, ips: []string{"10.1.1.2", "fd00::2"}, cards: []string{"eth1", "eth2"},
			calls: []string{"UpdateNetwork " + raw + " 0"},
		},
		"taps": {
			update: NetworkUpdate{Taps: []network.Held{held, held}},
			calls:  []string{"SendFile card-0", "SendFile card-1", `UpdateNetwork {"interfaces":null} 2`},
		},
		"a tap that is missing": {update: NetworkUpdate{Taps: []network.Held{wrong}, Interfaces: two}, code: codes.Unknown},
		"the guest fails": {
			update: NetworkUpdate{Interfaces: two}, errs: errs{"UpdateNetwork": {errInjected}}, code: codes.Unknown,
			calls: []string{"UpdateNetwork " + raw + " 0"},
		},
		"another network": {kind: hypervisor.NetworkTap, update: NetworkUpdate{Interfaces: two}, code: codes.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{errs: tc.errs}
			p := scriptedPod(t, s, ContainerRunning).pod
			if p.record.VM.Network = tc.kind; tc.kind == "" {
				p.record.VM.Network = hypervisor.NetworkAdopted
			}
			if err := p.e.UpdateNetwork(t.Context(), p.id, tc.update); codeOf(err) != tc.code {
				t.Errorf("got %v, want %v", err, tc.code)
			}
			if r := p.snapshot(); !slices.Equal(r.IPs, tc.ips) || !slices.Equal(r.Cards, tc.cards) {
				t.Errorf("recorded %q and %q, want %q and %q", r.IPs, r.Cards, tc.ips, tc.cards)
			}
			s.same(t, tc.calls...)
		})
	}
	if card.Most > 9 {
		t.Error("the number of taps has more than one digit")
	}
}
