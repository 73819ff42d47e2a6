package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
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
	if err := h.box.Start(h.ctx); !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), "taps") {
		t.Errorf("a second start: %v", err)
	}
}

// TestCardsFail: a VM without one of its cards does not start. A sandbox that is not created, not started or deleted
// closes its taps.
func TestCardsFail(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	c, taps := h.config(), h.taps("tap1")
	if err := h.box.Create(h.ctx, c, Files{Cards: taps}); !errors.Is(err, errdefs.ErrInvalidArgument) {
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

// TestSetNetwork checks that a running VM gets its further cards once, before the agent looks for them, also with a new
// shim. All taps are closed.
func TestSetNetwork(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	want := agentv1.SetNetwork{Interfaces: []*agentv1.Network{{Name: "eth0"}, nil, {Name: "eth2"}}}
	set := func(names ...string) error {
		taps := h.taps(names...)
		defer h.closed(taps)
		return h.box.SetNetwork(h.ctx, want, taps)
	}
	if err := set("early"); !errors.Is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("before the start: got %v, want %v", err, errdefs.ErrFailedPrecondition)
	}
	h.must(h.box.Create(h.ctx, h.config(), Files{}))
	h.must(h.box.Start(h.ctx))
	h.must(set())
	h.must(set("tap1", "tap2"))
	h.must(set())
	h.agent.mu.Lock()
	calls, got := slices.Clone(h.agent.calls), slices.Clone(h.agent.networks)
	h.agent.mu.Unlock()
	order := []agentv1.Op{agentv1.OpNetwork, "card tap1", "card tap2", agentv1.OpNetwork, agentv1.OpNetwork}
	if at := slices.Index(calls, agentv1.OpNetwork); !slices.Equal(calls[at:], order) {
		t.Errorf("calls %q, want %q at the end", calls, order)
	}
	if len(got) != 3 || !reflect.DeepEqual(got[2], want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	h.crash()
	h.must(h.restore(RestoreFiles{}))
	h.must(set("tap3"))
	h.agent.mu.Lock()
	defer h.agent.mu.Unlock()
	if slices.Contains(h.agent.calls, "card tap3") {
		t.Error("a VM gets further cards twice")
	}
}

// TestSetNetworkFails checks that cards are not plugged in again after a failure, and that the VM stays.
func TestSetNetworkFails(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.must(h.box.Create(h.ctx, h.config(), Files{}))
	h.must(h.box.Start(h.ctx))
	h.vm().fail["AddCards"] = errors.New("boom")
	taps := h.taps("tap1")
	if err := h.box.SetNetwork(h.ctx, agentv1.SetNetwork{}, taps); err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("got %v, want boom", err)
	}
	h.closed(taps)
	if h.vm().killed {
		t.Error("the VM is killed")
	}
	h.must(h.box.SetNetwork(h.ctx, agentv1.SetNetwork{}, h.taps("tap1")))
}

// TestSetNetworkOfTheNextVM checks that a VM gets its further cards, although a former VM had some and ended without a
// shim.
func TestSetNetworkOfTheNextVM(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.must(h.box.Create(h.ctx, h.config(), Files{}))
	h.must(h.box.Start(h.ctx))
	h.must(h.box.SetNetwork(h.ctx, agentv1.SetNetwork{}, h.taps("tap1")))
	h.crash()
	h.vm().refuse("Adopt", hypervisor.ErrGone)
	h.must(h.restore(RestoreFiles{}))
	h.must(h.box.Start(h.ctx))
	h.must(h.box.SetNetwork(h.ctx, agentv1.SetNetwork{}, h.taps("tap2")))
	h.agent.mu.Lock()
	defer h.agent.mu.Unlock()
	if !slices.Contains(h.agent.calls, "card tap2") {
		t.Errorf("calls %q, want card tap2", h.agent.calls)
	}
}
