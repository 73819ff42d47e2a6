package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/card"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/tap"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/network/adopt/inside"
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
		"a name server": {
			update: NetworkUpdate{Namespace: &store.Namespace{Resolver: true}},
			calls:  []string{`UpdateNetwork {"interfaces":null,"resolver":true} 0`},
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

// listeners answer Listening with scripted ports, and then wait.
type listeners struct {
	scriptedExt
	next chan []agentv1.ListeningPort
}

func (l listeners) Listening(ctx context.Context, _ *shimv1.ListeningRequest) (*shimv1.ListeningResponse, error) {
	select {
	case ports := <-l.next:
		raw, err := json.Marshal(agentv1.Listening{Ports: ports})
		return &shimv1.ListeningResponse{Now: raw}, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l listeners) Unpublish(ctx context.Context, r *shimv1.UnpublishRequest) (*shimv1.UnpublishResponse, error) {
	return &shimv1.UnpublishResponse{}, l.call(ctx, "Unpublish", " "+r.GetFile())
}

// TestNamespacePorts checks that the ports of a guest are opened in the client's namespace as soon as the client asks for
// it. They are recorded apart from the host's, and another shim or engine opens them again.
func TestNamespacePorts(t *testing.T) {
	t.Parallel()
	serve, clients, err := inside.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer clients.Close()
	go inside.Serve(serve)
	own, err := procid.Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	free, err := network.ChooseFree([]network.Port{{PodPort: 1}, {PodPort: 2, Protocol: "udp"}})
	if err != nil {
		t.Fatal(err)
	}
	tcp, udp := free[0].HostPort, free[1].HostPort
	s := &scripted{}
	ext := listeners{scriptedExt{scripted: s}, make(chan []agentv1.ListeningPort)}
	p := scriptedPod(t, s, ContainerRunning).pod
	p.record.VM.Network = hypervisor.NetworkAdopted
	p.conn.Ext = ext
	t.Cleanup(p.datagrams.Close)
	stop := p.followNetwork(t.Context(), p.conn)
	defer stop()
	held := store.Namespace{Held: network.Held{Holder: own, FD: int(clients.Fd())}, Publish: true}
	if err := p.e.UpdateNetwork(t.Context(), p.id, NetworkUpdate{Namespace: &held}); err != nil {
		t.Fatal(err)
	}
	s.calls()
	ext.next <- []agentv1.ListeningPort{{Port: uint16(tcp), Loopback: true}, {Port: uint16(udp), Datagrams: true}}
	want := []store.Port{
		{HostIP: "127.0.0.1", HostPort: tcp, PodPort: tcp}, {HostIP: "::", HostPort: udp, PodPort: udp, Protocol: "udp"},
	}
	ctx := testdeadline.Context(t, 10*time.Second)
	if !p.awaitRecord(ctx, func(r *store.Pod) bool { return slices.Equal(r.Namespace.Ports, want) }) {
		t.Fatalf("recorded %+v, want %+v", p.snapshot().Namespace.Ports, want)
	}
	file := fmt.Sprintf("inside-port-%d", tcp)
	s.same(t, "SendFile "+file, "Publish")
	if _, err := net.ListenPacket("udp", fmt.Sprintf(":%d", udp)); err == nil {
		t.Error("the UDP port is not open")
	}
	if err := p.e.UpdateNetwork(t.Context(), p.id, NetworkUpdate{Namespace: &held}); err != nil {
		t.Fatal(err)
	}
	s.calls()
	if got := p.snapshot(); !slices.Equal(got.Namespace.Ports, want) || got.Ports != nil {
		t.Errorf("after another update: %+v and, on the host, %+v", got.Namespace.Ports, got.Ports)
	}
	if err := p.republish(t.Context(), p.conn); err != nil {
		t.Error(err)
	}
	s.same(t, "SendFile "+file, "Publish")
	p.datagrams.Unpublish(udp)
	p.resumeDatagrams(t.Context())
	if _, err := net.ListenPacket("udp", fmt.Sprintf(":%d", udp)); err == nil {
		t.Error("the UDP port is not open again")
	}
	ext.next <- nil
	if !p.awaitRecord(ctx, func(r *store.Pod) bool { return len(r.Namespace.Ports) == 0 }) {
		t.Errorf("left: %+v", p.snapshot().Namespace.Ports)
	}
	s.same(t, "Unpublish "+file)
	stop()
}
