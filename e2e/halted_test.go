package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// testHalted: if a pod's QEMU is stopped by a signal, calls to the pod fail within seconds with the reason, and its
// removal is as fast.
func testHalted(t *testing.T, w *world) {
	const limit = 20 * time.Second // a call to an agent times out after 30 s
	w.must(t, pod("halted", "Never", "exec sleep 1000"), "run", "-d", "-q", "-")
	if err := syscall.Kill(w.facts(t, "halted").VMPID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	exec := w.run(t, "", "exec", "halted", "true")
	took := time.Since(began)
	if said := exec.err.String(); exec.ProcessState.Success() || !strings.Contains(said, "was stopped by a signal") || took > limit {
		t.Errorf("exec, after %v: %s", took, said)
	}
	began = time.Now()
	w.must(t, "", "rm", "-f", "halted")
	if took := time.Since(began); took > limit {
		t.Errorf("rm took %v", took)
	}
}
