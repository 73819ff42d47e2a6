package agent_test

import (
	"testing"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// TestGuest boots one machine, saves it, and drives the agent in clones of it.
func TestGuest(t *testing.T) {
	if testing.Short() {
		t.Skip("boots machines: not with -short")
	}
	tm := newTemplate(t)
	for name, test := range map[string]func(*testing.T, *template){
		"Run": testRun,
	} {
		t.Run(name, func(t *testing.T) { test(t, tm) })
	}
}

func testRun(t *testing.T, tm *template) {
	g := tm.start(t)
	c1 := agentv1.Process{Container: "c1"}
	g.launch("c1", spec("sh", "-c", "echo hello; echo bad >&2; exit 3"))
	if got := g.read(c1, "stdout"); got != "hello\n" {
		t.Errorf("stdout = %q", got)
	}
	if got := g.read(c1, "stderr"); got != "bad\n" {
		t.Errorf("stderr = %q", got)
	}
	if e := g.exit(c1); e.Code != 3 || e.Signal != 0 || e.OOMKilled {
		t.Errorf("exit = %+v", e)
	}
	e, err := g.Delete(g.ctx(), c1)
	if err != nil || e.Code != 3 {
		t.Errorf("delete = %+v, %v", e, err)
	}
}
