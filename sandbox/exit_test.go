package sandbox

import (
	"net"
	"strings"
	"testing"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// TestExitIsAskedForAgain: a first refusal to report an exit may come from a dying guest; a second one is believed.
func TestExitIsAskedForAgain(t *testing.T) {
	t.Parallel()
	for _, refusals := range []int{1, 2} {
		h := running(t)
		left := refusals
		h.agent.answer(agentv1.OpWait, func(conn net.Conn) {
			h.agent.mu.Lock()
			if left--; left == 0 {
				delete(h.agent.raw, agentv1.OpWait)
			}
			h.agent.mu.Unlock()
			_ = agentv1.WriteFrame(conn, agentv1.Reply{Error: &agentv1.Error{Message: "boom"}}, agentv1.MaxReply)
		})
		h.started("c").finish(exited(3))
		exit := h.wait(Process{Container: "c"})
		if believed := refusals == 2; strings.Contains(exit.Message, "boom") != believed || (exit.Code == 3) == believed {
			t.Errorf("after %d refusals: %+v", refusals, exit)
		}
	}
}

// TestExitsAreBounded: implausible exits of a guest are corrected.
func TestExitsAreBounded(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ code, signal, wantCode, wantSignal int }{
		{0, 0, 0, 0}, {255, 64, 255, 64}, {256, 65, 255, 0}, {-1, -1, 255, 0}, {1, 1, 1, 1},
	} {
		got := exitOf(agentv1.Exit{Code: row.code, Signal: row.signal, At: now()}, now().Add(-time.Minute))
		if got.Code != row.wantCode || got.Signal != row.wantSignal || (got.Reason == ReasonCompleted) != (row.wantCode == 0) {
			t.Errorf("%+v: %+v", row, got)
		}
	}
	began := now().Add(-time.Minute)
	for at, want := range map[time.Time]bool{
		began: true, began.Add(time.Second): true, began.Add(-time.Second): false, began.Add(time.Hour): false,
	} {
		if got := exitOf(agentv1.Exit{At: at}, began); got.At.Equal(at) != want || got.At.Before(began) || got.At.After(now()) {
			t.Errorf("%v after the start: %v", at.Sub(began), got.At.Sub(began))
		}
	}
	if got := exitOf(agentv1.Exit{OOMKilled: true}, began); got.Code != 137 || got.Reason != ReasonOOMKilled {
		t.Errorf("%+v", got)
	}
	if got := exitOf(agentv1.Exit{OOMKilled: true, Code: 1}, began); got.Code != 1 {
		t.Errorf("%+v", got)
	}
}
