package testproc

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

// TestLasting: a command that dies with its thread outlives the threads of others, which end with their goroutines.
func TestLasting(t *testing.T) {
	for range 20 {
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		wait, err := Lasting(cmd)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { runtime.LockOSThread() })
		}
		all.Wait()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		_ = wait()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGTERM {
			t.Fatalf("it has ended: %v", cmd.ProcessState)
		}
	}
	if _, err := Lasting(exec.Command("/nowhere")); err == nil {
		t.Error("what is not there was started")
	}
}
