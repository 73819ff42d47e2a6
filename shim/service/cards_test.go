package service_test

import (
	"encoding/json"
	"slices"
	"testing"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/card"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// TestCards: a pod's sandbox gets one tap per further interface; their number is bounded.
func TestCards(t *testing.T) {
	r := start(t)
	create := func(cards int) error {
		config, err := json.Marshal(sandbox.Config{ID: "pod", Cards: make([]agentv1.Network, cards)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.sandbox.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{
			SandboxID: "pod", Options: &anypb.Any{TypeUrl: layout.ConfigType, Value: config},
		})
		return err
	}
	r.file(t, layout.Card(0))
	wantCode(t, "a tap that was not sent", create(2), codes.NotFound)
	for i := range card.Most + 1 {
		r.file(t, layout.Card(i))
	}
	wantCode(t, "too many", create(card.Most+1), codes.InvalidArgument)
	wantCode(t, "as many as can be", create(card.Most), codes.OK)
	if got := r.fake.noted(); len(got) != card.Most+1 || !slices.Contains(got, "card") {
		t.Errorf("calls %q", got)
	}
}

// TestUpdateNetwork checks that the sandbox gets the interfaces and the taps, and the bounds of their numbers.
func TestUpdateNetwork(t *testing.T) {
	r := start(t)
	update := func(interfaces string, taps int) error {
		_, err := r.extension.UpdateNetwork(t.Context(), &shimv1.UpdateNetworkRequest{Interfaces: []byte(interfaces), Taps: uint32(taps)})
		return err
	}
	wantCode(t, "a tap that was not sent", update("{}", 1), codes.NotFound)
	for i := range 2 {
		r.file(t, layout.Card(i))
	}
	wantCode(t, "taps", update(`{"interfaces": [{"name": "eth0"}, null, {"name": "eth2"}]}`, 2), codes.OK)
	if got := r.fake.noted(); !slices.Equal(got, []string{"network eth0 - eth2, 2 taps"}) {
		t.Errorf("calls %q", got)
	}
	wantCode(t, "no JSON", update("{", 0), codes.InvalidArgument)
	wantCode(t, "too many interfaces", update(`{"interfaces": [null,null,null,null,null,null,null,null,null]}`, 0), codes.InvalidArgument)
	wantCode(t, "too many taps", update("{}", card.Most+1), codes.InvalidArgument)
}
