package usage

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
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

// TestCards checks that only the pod's own interfaces count, once each.
func TestCards(t *testing.T) {
	t.Parallel()
	m := Meter{Record: store.Pod{Cards: []string{"net1", "net2", "gone"}}, Shim: &link.Conn{Ext: statsGuest{cards: []agentv1.NetUsage{
		{Name: "eth0", RxBytes: 1}, {Name: "net2", RxBytes: 1 << 60}, {Name: "net1", RxBytes: 2}, {Name: "net1", RxBytes: 3},
		{Name: "own0", RxBytes: 4},
	}}}}
	u, err := m.Usage(t.Context())
	want := []agentv1.NetUsage{{Name: "net1", RxBytes: 2}, {Name: "net2", RxBytes: link.MaxCounter}}
	if err != nil || !slices.Equal(u.Cards, want) {
		t.Errorf("%+v, %v", u, err)
	}
}

// TestSilentPodsHideNobody checks that silent guests delay All only briefly, and do not hide others.
func TestSilentPodsHideNobody(t *testing.T) {
	t.Parallel()
	var pods []Meter
	for i := range 5 {
		pods = append(pods, Meter{Record: store.Pod{ID: fmt.Sprint(i)}, Shim: &link.Conn{Ext: statsGuest{silent: i > 0}}})
	}
	began := time.Now()
	found := All(t.Context(), pods, slog.New(slog.DiscardHandler))
	if took := time.Since(began); len(found) != 1 || found["0"] == nil || took > 3*wait {
		t.Errorf("%d pods after %v", len(found), took)
	}
}

// TestMemory checks that the VM of a ready pod counts, with the memory of its cgroup.
func TestMemory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "memory.current"), []byte("1000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		phase        store.Phase
		exit         string
		dirs         []string
		given, taken int64
	}{
		"ready":            {phase: store.Ready, dirs: []string{dir}, given: 256 << 20, taken: 1000},
		"without a cgroup": {phase: store.Ready, given: 256 << 20},
		"stopped":          {phase: store.Stopped, dirs: []string{dir}},
		"ended":            {phase: store.Ready, exit: "killed", dirs: []string{dir}},
	} {
		m := Meter{Record: store.Pod{Phase: tc.phase, Exit: tc.exit, MemoryMiB: 256}}
		m.Record.Cgroup.Dirs = tc.dirs
		if given, taken := m.Memory(); given != tc.given || taken != tc.taken {
			t.Errorf("%s: %d, %d", name, given, taken)
		}
		if _, known := m.HeldMemory(); known && tc.given == 0 {
			t.Errorf("%s: a VM that does not run holds memory", name)
		}
	}
}
