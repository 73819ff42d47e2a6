package sandbox

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// ooms waits for n OOM events, and returns their containers and the exits in between.
func (h *harness) ooms(n int) (order []string) {
	h.t.Helper()
	for {
		h.mu.Lock()
		seen, found := h.seen, 0
		order = nil
		for _, e := range h.events {
			switch e.Kind {
			case OOM:
				found++
				order = append(order, e.Process.Container)
			case ProcessExited:
				order = append(order, "exit of "+e.Process.Container+e.Process.Exec)
			}
		}
		h.mu.Unlock()
		if found >= n {
			return order
		}
		select {
		case <-seen:
		case <-h.ctx.Done():
			h.t.Fatalf("%d of %d OOM events: %v", found, n, order)
		}
	}
}

// TestOOMEvents: each rise of a container's kills is one event, with an exit or without, under one shim and the next.
func TestOOMEvents(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.box.oomPause = time.Millisecond
	p := h.started("c")
	h.started("other")
	h.agent.kill("c", 2)
	h.ooms(1)
	if st, err := h.box.ProcessStatus(Process{Container: "c"}); err != nil || st.State != Running {
		t.Errorf("after a kill: %+v, %v", st, err)
	}
	h.agent.kill("unknown", 1) // no container of the host
	h.agent.kill("c", 1)
	h.ooms(2)
	// The exit of an exec'd process by a kill that was reported.
	x := Process{Container: "c", Exec: "x"}
	h.must(h.box.CreateExec(h.ctx, ExecConfig{Process: x, Stdio: containerv1.Discard{}}))
	_, err := h.box.StartProcess(h.ctx, x)
	h.must(err)
	h.fake(x).finish(agentv1.Exit{Code: 137, Signal: 9, OOMKilled: true, OOMKills: 3, At: time.Now()})
	if got := h.wait(x); got.Reason != ReasonOOMKilled {
		t.Errorf("exit of a killed process: %+v", got)
	}
	h.crash()
	h.must(h.restore(h.logFiles("c", "other")))
	// The exit says it first.
	p.finish(agentv1.Exit{Code: 137, Signal: 9, OOMKilled: true, OOMKills: 4, At: time.Now()})
	if got := h.wait(Process{Container: "c"}); got.Reason != ReasonOOMKilled {
		t.Errorf("exit: %+v", got)
	}
	h.agent.kill("c", 1)
	h.agent.kill("other", 1)
	if diff := cmp.Diff([]string{"c", "c", "exit of cx", "c", "exit of c", "other"}, h.ooms(4)); diff != "" {
		t.Error(diff)
	}
}

// TestOOMEventsOfOlderAgents: an agent that does not count reports a kill with the exit.
func TestOOMEventsOfOlderAgents(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.box.oomPause = time.Millisecond
	h.agent.refuse(agentv1.OpOOMKills, errors.Join(errdefs.ErrNotImplemented))
	p := h.started("c")
	p.finish(agentv1.Exit{Code: 137, Signal: 9, OOMKilled: true, At: time.Now()})
	h.wait(Process{Container: "c"})
	if diff := cmp.Diff([]string{"c", "exit of c"}, h.ooms(1)); diff != "" {
		t.Error(diff)
	}
}

// TestHostileKills: a guest that always counts more causes one event for a container in each interval, and none for others.
func TestHostileKills(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.box.oomPause = 20 * time.Millisecond
	n := 0
	h.agent.answer(agentv1.OpOOMKills, func(c net.Conn) {
		h.agent.mu.Lock()
		n++
		body := fmt.Sprintf(`{"kills":{"c":%d,"../../etc":%d}}`, n, n)
		h.agent.mu.Unlock()
		reply(c, body)
	})
	began := time.Now()
	h.started("c")
	const events = 5
	for _, container := range h.ooms(events) {
		if container != "c" {
			t.Errorf("an event of %q", container)
		}
	}
	if took := time.Since(began); took < events*h.box.oomPause {
		t.Errorf("%d events in %v", events, took)
	}
}
