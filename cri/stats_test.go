package cri

import (
	"context"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/cri/store"
)

// statsGuest tells its figures, or when it is silent never does.
type statsGuest struct {
	shimv1.ExtensionClient
	silent bool
}

func (g statsGuest) Stats(ctx context.Context, _ *shimv1.StatsRequest) (*shimv1.StatsResponse, error) {
	if g.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &shimv1.StatsResponse{}, nil
}

// TestSilentPodsHideNobody: guests that do not answer cost those who ask for all
// pods' figures a moment, and not the others'.
func TestSilentPodsHideNobody(t *testing.T) {
	t.Parallel()
	s := fakeEngine(t, newWorld(), testOptions(t, testRoots(t)))
	for i := range 5 {
		p, err := newPod(s, &store.Pod{ID: store.NewID(), Phase: store.Ready})
		if err != nil {
			t.Fatal(err)
		}
		p.config = podConfig("p")
		p.conn = &conn{ext: statsGuest{silent: i > 0}, done: make(chan struct{}), close: func() error { return nil }}
		s.mu.Lock()
		s.pods[p.id] = p
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.pods, p.id)
		}()
	}
	began := time.Now()
	list, err := s.ListPodSandboxStats(t.Context(), nil)
	if took := time.Since(began); err != nil || len(list) != 1 || took > 3*listWait {
		t.Errorf("%d pods after %v: %v", len(list), took, err)
	}
	if _, err := s.ListContainerStats(t.Context(), &runtimeapi.ContainerStatsFilter{}); err != nil {
		t.Error(err)
	}
}
