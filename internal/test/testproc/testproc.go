// Package testproc starts processes that end with their test.
package testproc

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// Start starts a command and returns when its arguments are visible: for a moment after its program was loaded, a
// process has none. The command is killed at the test's end. A nil input stays empty and open until the end. A command
// with a Pdeathsig is started by Lasting.
func Start(t testing.TB, cmd *exec.Cmd) procid.ID {
	t.Helper()
	if cmd.Stdin == nil {
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	wait := cmd.Wait
	if cmd.SysProcAttr != nil && cmd.SysProcAttr.Pdeathsig != 0 {
		wait, err = Lasting(cmd)
	} else {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = wait()
	})
	id, err := procid.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	ctx := testdeadline.Context(t, 5*time.Second)
	for len(procid.Args(id.PID)) == 0 && id.Alive() {
		select {
		case <-time.After(time.Millisecond): // there is no event for it
		case <-ctx.Done():
			t.Fatal(context.Cause(ctx))
		}
	}
	return id
}

// Lasting starts a command on a thread that lasts as long as the command: a command with a Pdeathsig dies with the
// thread that started it, and a thread ends with a goroutine that has locked it. wait returns how the command has
// ended. It is safe for concurrent use.
func Lasting(cmd *exec.Cmd) (wait func() error, err error) {
	var end error
	started, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if started <- err; err == nil {
			end = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return func() error { <-done; return end }, nil
}

// Stop stops a process by SIGSTOP and returns when all its threads have stopped. The kernel delivers the signal to one
// thread, and the others go on until that one has noticed.
func Stop(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("stop process %d: %v", pid, err)
	}
	ctx := testdeadline.Context(t, 5*time.Second)
	for running(t, pid) {
		select {
		case <-time.After(time.Millisecond): // only its own parent is notified
		case <-ctx.Done():
			t.Fatalf("stop process %d: %v", pid, context.Cause(ctx))
		}
	}
}

// running reports whether a thread of a process is not stopped.
func running(t testing.TB, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d has no threads (%v)", pid, err)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		if state := stat[bytes.LastIndexByte(stat, ')')+1:]; !bytes.HasPrefix(state, []byte(" T")) {
			return true
		}
	}
	return false
}
