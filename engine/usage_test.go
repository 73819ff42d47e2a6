package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/store"
)

// statsGuest reports usage, or never answers if it is silent.
type statsGuest struct {
	shimv1.ExtensionClient
	silent bool
	cards  []agentv1.NetUsage
}

func (g statsGuest) Stats(ctx context.Context, _ *shimv1.StatsRequest) (*shimv1.StatsResponse, error) {
	if g.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	raw, err := json.Marshal(agentv1.PodStats{Usage: agentv1.Usage{Cards: g.cards}})
	return &shimv1.StatsResponse{Stats: raw}, err
}

// TestUsageOfCards checks that only the pod's own interfaces count, once each.
func TestUsageOfCards(t *testing.T) {
	t.Parallel()
	e := bareEngine(t)
	p := barePod(e, statsGuest{cards: []agentv1.NetUsage{
		{Name: "eth0", RxBytes: 1}, {Name: "net2", RxBytes: 1 << 60}, {Name: "net1", RxBytes: 2}, {Name: "net1", RxBytes: 3},
		{Name: "own0", RxBytes: 4},
	}})
	p.record.Cards = []string{"net1", "net2", "gone"}
	u, err := p.usage(t.Context())
	want := []agentv1.NetUsage{{Name: "net1", RxBytes: 2}, {Name: "net2", RxBytes: link.MaxCounter}}
	if err != nil || !slices.Equal(u.Cards, want) {
		t.Errorf("%+v, %v", u, err)
	}
}

// TestSilentPodsHideNobody checks that silent guests delay Usages only briefly, and do not hide others.
func TestSilentPodsHideNobody(t *testing.T) {
	t.Parallel()
	e := bareEngine(t)
	var ids []string
	for i := range 5 {
		p := barePod(e, statsGuest{silent: i > 0})
		ids = append(ids, p.id)
		e.hold(p)
	}
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		clear(e.pods)
	}()
	began := time.Now()
	found := e.Usages(t.Context(), ids)
	if took := time.Since(began); len(found) != 1 || found[ids[0]] == nil || took > 3*usageWait {
		t.Errorf("%d pods after %v", len(found), took)
	}
}

// TestMemory checks that the VMs of ready pods count, with the memory of their cgroups.
func TestMemory(t *testing.T) {
	t.Parallel()
	e := bareEngine(t)
	for i, phase := range []store.Phase{store.Ready, store.Ready, store.Stopped} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "memory.current"), []byte("1000\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		p := newPod(e, &store.Pod{ID: idOf(fmt.Sprint(i)), Phase: phase, MemoryMiB: 256})
		if i != 1 {
			p.record.Cgroup.Dirs = []string{dir}
		}
		e.hold(p)
	}
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		clear(e.pods)
	}()
	if m := e.Memory(); m != (Memory{Given: 512 << 20, Taken: 1000}) {
		t.Errorf("%+v", m)
	}
}
