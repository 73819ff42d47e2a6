package cri

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// "Ids are unique and can be named by any unambiguous prefix."
func TestPrefixes(t *testing.T) {
	s := fakeEngine(t, newWorld(), testOptions(t, testRoots(t)))
	for range 17 { // two of them begin alike
		config := podConfig("p")
		config.Metadata.Attempt = uint32(len(s.all()))
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

func (s *Service) find1(t *testing.T, id string) *pod {
	p, err := s.find(id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
