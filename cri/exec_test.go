package cri

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
)

// TestPortForward: one request for several ports gets a stream for each, in its order.
func TestPortForward(t *testing.T) {
	w := enginetest.New()
	w.Streams = func(r *shimv1.OpenRequest) (string, error) { return fmt.Sprintf("token-%d", r.GetPort()), nil }
	s := fakeService(t, w, testOptions(t, enginetest.Roots(t)))
	id, err := s.RunPodSandbox(t.Context(), podConfig("p"), "")
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.PortForward(t.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: id, Port: []int32{443, 80, 443}})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(res.GetUrl())
	if err != nil || u.Scheme != link.Scheme || u.Path == "" {
		t.Fatalf("URL %q: %v", res.GetUrl(), err)
	}
	want := url.Values{"port": {"443", "80", "443"}, "token": {"token-443", "token-80", "token-443"}}
	if diff := cmp.Diff(want, u.Query()); diff != "" {
		t.Error(diff)
	}
	for _, test := range []struct {
		name  string
		ports []int32
	}{
		{name: "none"}, {name: "0", ports: []int32{80, 0}}, {name: "too large", ports: []int32{65536}},
		{name: "too many", ports: make([]int32, maxForwards+1)},
	} {
		_, err := s.PortForward(t.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: id, Port: test.ports})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
