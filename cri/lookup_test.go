package cri

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
)

// TestPrefixes: ids are unique, and any unambiguous prefix names one.
func TestPrefixes(t *testing.T) {
	s := fakeService(t, enginetest.New(), testOptions(t, enginetest.Roots(t)))
	for range 17 { // two of them begin alike
		config := podConfig("p")
		config.Metadata.Attempt = uint32(len(s.e.Pods()))
		if _, err := s.RunPodSandbox(t.Context(), config, ""); err != nil {
			t.Fatal(err)
		}
	}
	pods, err := s.ListPodSandbox(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ambiguous := 0
	for _, p := range pods {
		if _, err := s.PodSandboxStatus(t.Context(), p.Id[:1], false); status.Code(err) == codes.InvalidArgument {
			ambiguous++
		}
		if st, err := s.PodSandboxStatus(t.Context(), p.Id[:20], false); err != nil || st.Status.Id != p.Id {
			t.Errorf("by prefix: %v %v", st, err)
		}
	}
	if ambiguous < 2 {
		t.Errorf("%d ambiguous prefixes among 17 ids", ambiguous)
	}
}
