package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// taps returns one open file per name.
func (h *harness) taps(names ...string) (files []*os.File) {
	h.t.Helper()
	dir := h.t.TempDir()
	for _, name := range names {
		f, err := os.Create(filepath.Join(dir, name))
		h.must(err)
		files = append(files, f)
	}
	return files
}

func (h *harness) closed(files []*os.File) {
	h.t.Helper()
	for _, f := range files {
		if !errors.Is(f.Close(), os.ErrClosed) {
			h.t.Errorf("%s is open", filepath.Base(f.Name()))
		}
	}
}

// TestCards: a VM gets the cards of its pod's further interfaces once, before its agent is configured. The taps are
// closed.
func TestCards(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	c, taps := h.config(), h.taps("tap1", "tap2")
	c.Cards = []agentv1.Network{{Name: "net1"}, {Name: "net2"}}
	h.must(h.box.Create(h.ctx, c, Files{Cards: taps}))
	h.must(h.box.Start(h.ctx))
	h.closed(taps)
	if got := h.agent.configured[0].Cards; len(got) != 2 || got[1].Name != "net2" {
		t.Errorf("configured with %+v", got)
	}
	h.agent.mu.Lock()
	calls := slices.Clone(h.agent.calls)
	h.agent.mu.Unlock()
	at := func(call agentv1.Op) int { return slices.Index(calls, call) }
	if at("card tap1") < 0 || at("card tap1") > at("card tap2") || at("card tap2") > at(agentv1.OpConfigure) {
		t.Errorf("calls %q", calls)
	}
	h.must(h.box.Stop(h.ctx))
	if err := h.box.Start(h.ctx); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "taps") {
		t.Errorf("a second start: %v", err)
	}
}

// TestCardsFail: a VM without one of its cards does not start. A sandbox that is not created, not started or deleted
// closes its taps.
func TestCardsFail(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	c, taps := h.config(), h.taps("tap1")
	if err := h.box.Create(h.ctx, c, Files{Cards: taps}); !errors.Is(err, ErrInvalid) {
		t.Errorf("one tap too many: %v", err)
	}
	h.closed(taps)
	c.Cards, taps = []agentv1.Network{{Name: "net1"}}, h.taps("tap1")
	h.must(h.box.Create(h.ctx, c, Files{Cards: taps}))
	h.must(h.box.WaitBooted(h.ctx))
	h.vm().fail["AddCards"] = errors.New("boom")
	if err := h.box.Start(h.ctx); err == nil || !strings.Contains(err.Error(), "boom") || !h.vm().killed {
		t.Errorf("start: %v", err)
	}
	h.closed(taps)
	for name, end := range map[string]func(*harness) error{
		"deleted": func(h *harness) error { return h.box.Delete(h.ctx, true) },
		"let go":  func(h *harness) error { return h.box.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			taps := h.taps("tap1")
			h.must(h.box.Create(h.ctx, c, Files{Cards: taps}))
			h.must(end(h))
			h.closed(taps)
		})
	}
}
