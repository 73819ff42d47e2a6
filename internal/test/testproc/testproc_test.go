package testproc

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestLasting: a command that dies with its thread outlives other threads that end with their goroutines.
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
		t.Error("a missing program was started")
	}
}

// TestStop: a stopped process does nothing more, whatever it was doing.
func TestStop(t *testing.T) {
	for range 20 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		cmd := exec.Command("sh", "-c", "while :; do echo; done")
		cmd.Stdout = w
		id := Start(t, cmd)
		Stop(t, id.PID)
		if !id.Stopped() {
			t.Fatal("it is not stopped")
		}
		// Its earlier output is read, and no more arrives.
		fd := int(r.Fd()) // Fd makes it blocking, each time
		if err := syscall.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 1<<16)
		for err = nil; err == nil; {
			_, err = syscall.Read(fd, buffer)
		}
		time.Sleep(2 * time.Millisecond)
		if n, err := syscall.Read(fd, buffer); !errors.Is(err, syscall.EAGAIN) {
			t.Fatalf("it went on: %d bytes, %v", n, err)
		}
	}
}
