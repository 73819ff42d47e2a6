package remote

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/card"
	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	"github.com/bulkhead-project/bulkhead/door/remote/client"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/network"
)

// TestNetworkUpdate checks that every field of a client's interfaces reaches the engine.
func TestNetworkUpdate(t *testing.T) {
	t.Parallel()
	boot, err := procid.BootID()
	if err != nil {
		t.Fatal(err)
	}
	want := engine.NetworkUpdate{
		Interfaces: make([]*agentv1.Network, card.Most+1),
		Taps:       []network.Held{{Holder: procid.ID{PID: 7, Start: 8, Boot: boot}, FD: 9}, {Holder: procid.ID{PID: 7, Start: 8, Boot: boot}}},
	}
	want.Interfaces[0] = &agentv1.Network{
		Name: "eth0", MAC: "02:00:00:00:00:01", MTU: 1400, Addresses: []string{"10.1.1.2/24", "fd00::2/64"},
		Routes: []agentv1.Route{
			{Destination: "10.9.0.0/16"}, {Destination: "0.0.0.0/0", Gateway: "10.9.0.1", Metric: 7},
		},
		Neighbours: []agentv1.Neighbour{{Address: "10.9.0.1", MAC: "02:00:00:00:00:99"}},
	}
	want.Interfaces[2] = &agentv1.Network{Name: "bare", MAC: "02:00:00:00:00:02"}
	held := network.Held{Holder: procid.ID{PID: 10, Start: 11, Boot: boot}, FD: 12}
	want.Namespace = &store.Namespace{Held: held, Publish: true, Resolver: true}
	got, err := networkUpdate(&enginev1.UpdateNetworkRequest{
		Interfaces: client.Interfaces(want.Interfaces), Holder: &enginev1.Holder{Pid: 7, Started: 8}, TapFds: []int32{9, 0},
		Namespace: &enginev1.Namespace{Holder: &enginev1.Holder{Pid: 10, Started: 11}, Fd: 12, Publish: true, Resolver: true},
	})
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	start, err := podRequest(&enginev1.StartRequest{Key: "k", Network: "adopted", Holder: &enginev1.Holder{Pid: 7, Started: 8}, TapFd: 9})
	if diff := cmp.Diff(&want.Taps[0], start.Tap); diff != "" || err != nil || start.Network != network.KindAdopted {
		t.Errorf("start: %v (-want +got):\n%s", err, diff)
	}
}

// TestNetworkRefused checks that impossible interfaces and descriptors do not reach the engine.
func TestNetworkRefused(t *testing.T) {
	t.Parallel()
	with := func(change func(*enginev1.Interface)) *enginev1.UpdateNetworkRequest {
		i := &enginev1.Interface{Name: "eth0", Mac: "02:00:00:00:00:01"}
		change(i)
		return &enginev1.UpdateNetworkRequest{Interfaces: []*enginev1.Interface{i}}
	}
	twice := with(func(*enginev1.Interface) {})
	twice.Interfaces = append(twice.Interfaces, twice.Interfaces[0])
	holder := &enginev1.Holder{Pid: 7, Started: 8}
	for name, tc := range map[string]struct {
		r    *enginev1.UpdateNetworkRequest
		says string
	}{
		"one card twice":   {twice, "card 0"},
		"card 8":           {with(func(i *enginev1.Interface) { i.Card = 8 }), "card 8"},
		"no name":          {with(func(i *enginev1.Interface) { i.Name = "" }), "name"},
		"a long name":      {with(func(i *enginev1.Interface) { i.Name = strings.Repeat("x", 16) }), "name"},
		"no MAC":           {with(func(i *enginev1.Interface) { i.Mac = "" }), "MAC"},
		"a large MTU":      {with(func(i *enginev1.Interface) { i.Mtu = 65536 }), "MTU"},
		"an address alone": {with(func(i *enginev1.Interface) { i.Addresses = []string{"10.0.0.1"} }), "10.0.0.1"},
		"many addresses":   {with(func(i *enginev1.Interface) { i.Addresses = make([]string, 65) }), "64 addresses"},
		"a wrong route":    {with(func(i *enginev1.Interface) { i.Routes = []*enginev1.Route{{Destination: "x"}} }), "route"},
		"a wrong gateway": {with(func(i *enginev1.Interface) {
			i.Routes = []*enginev1.Route{{Destination: "0.0.0.0/0", Gateway: "x"}}
		}), "route"},
		"many routes":       {with(func(i *enginev1.Interface) { i.Routes = make([]*enginev1.Route, 1025) }), "1024 routes"},
		"a wrong neighbour": {with(func(i *enginev1.Interface) { i.Neighbours = []*enginev1.Neighbour{{Address: "10.0.0.1"}} }), "neighbour"},
		"many taps":         {&enginev1.UpdateNetworkRequest{Holder: holder, TapFds: make([]int32, 8)}, "8 taps"},
		"no holder":         {&enginev1.UpdateNetworkRequest{TapFds: []int32{3}}, "process 0"},
		"no namespace":      {&enginev1.UpdateNetworkRequest{Namespace: &enginev1.Namespace{}}, "process 0"},
		"no descriptor":     {&enginev1.UpdateNetworkRequest{Holder: holder, TapFds: []int32{-1}}, "descriptor -1"},
	} {
		if _, err := networkUpdate(tc.r); grpccode.Of(err) != codes.InvalidArgument || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v: %v, want %q", name, grpccode.Of(err), err, tc.says)
		}
	}
	if _, err := podRequest(&enginev1.StartRequest{Key: "k", Holder: &enginev1.Holder{}}); grpccode.Of(err) != codes.InvalidArgument {
		t.Errorf("start with a wrong holder: %v", err)
	}
}
