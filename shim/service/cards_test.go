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
