package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/enginetest"
)

// first runs a pod and removes it: it has the template built, and the pool filled
// after it.
func first(ctx context.Context, t *testing.T, e *engine.Engine) {
	t.Helper()
	id, err := e.StartPod(ctx, podRequest("first"))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.RemovePod(ctx, id); err != nil {
		t.Fatal(err)
	}
}

// TestRehearsal takes real machines from the pool, one that has rehearsed to
// the end and one in the middle of it: pods find nothing of a rehearsal, and
// each machine is another one.
func TestRehearsal(t *testing.T) {
	o := enginetest.Real(t, 1)
	e := enginetest.Open(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	first(ctx, t, e)
	machines := map[string]bool{}
	// On a loaded machine one that is taken at once may have rehearsed all the same.
	const attempts = 5
	names := []string{"whole"}
	for i := range attempts {
		names = append(names, fmt.Sprintf("early-%d", i))
	}
	for _, name := range names {
		id := e.Member(t)
		if name == "whole" {
			if err := e.Rehearsed(ctx); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		pod, err := e.StartPod(ctx, podRequest(name))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: pod %v", name, time.Since(began))
		if pod != id {
			t.Errorf("%s: the pod is not the pool's", name)
		}
		facts, err := e.Facts(ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		var phases []string
		for _, p := range facts.Phases {
			phases = append(phases, p.Name)
		}
		rehearsed := slices.Contains(phases, "machine: ahead: exec")
		if name == "whole" && !rehearsed {
			t.Errorf("%s: phases %q", name, phases)
		}
		c := startContainer(ctx, t, e, pod, "c", "sleep", "1000")
		t.Logf("%s: container %v", name, time.Since(began))
		out, _, err := e.ExecSync(ctx, c, []string{"sh", "-c", `
			cat /etc/machine-id /proc/sys/kernel/random/boot_id
			hostname
			cat /proc/mounts
			ls /sys/fs/cgroup
			ls /sys/block`}, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitN(string(out), "\n", 4)
		if len(lines) < 4 || machines[lines[0]] || machines[lines[1]] || len(lines[0]) != 32 || len(lines[1]) != 36 {
			t.Fatalf("%s: %q, and before %v", name, out, machines)
		}
		machines[lines[0]], machines[lines[1]] = true, true
		if lines[2] != name || strings.Contains(lines[3], "rehears") {
			t.Errorf("%s: %q", name, out)
		}
		if err := e.RemovePod(ctx, pod); err != nil {
			t.Error(err)
		}
		if !rehearsed {
			break
		}
		if name == names[attempts] {
			t.Errorf("none of %d machines was taken before it had rehearsed", attempts)
		}
	}
	if err := e.Close(context.Background()); err != nil {
		t.Error(err)
	}
	enginetest.NothingLeft(t, o)
}
