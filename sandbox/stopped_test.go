package sandbox

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// TestStoppedProcess: a call fails within seconds if the VM's process is stopped, and says why. A call to a slow agent
// continues.
func TestStoppedProcess(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	process := exec.Command("sleep", "60")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	id, err := procid.Of(process.Process.Pid)
	h.must(err)
	vm := h.vm()
	vm.mu.Lock()
	vm.process = id
	vm.mu.Unlock()
	h.agent.stall(agentv1.OpStats)

	got := make(chan error, 1)
	go func() { _, err := h.box.ContainerStats(h.ctx, "c"); got <- err }()
	select {
	case err := <-got:
		t.Fatalf("a call to a slow agent ended: %v", err)
	case <-time.After(1500 * time.Millisecond):
	}
	h.must(id.Signal(syscall.SIGSTOP))
	stopped := time.Now()
	if err := <-got; !errors.Is(err, ErrVMStopped) || !strings.Contains(err.Error(), "was stopped by a signal") {
		t.Errorf("after %v: %v", time.Since(stopped), err)
	}
}
