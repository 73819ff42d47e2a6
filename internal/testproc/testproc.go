// Package testproc starts processes that end with their test.
package testproc

import (
	"context"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
)

// Start starts a command, which is killed at the test's end, and returns when it shows its
// arguments: a process has none for a moment after its program has been loaded. Its input, if
// none is given, stays empty and open until the end. Nobody else waits for one with a Pdeathsig, which is Lasting.
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
		case <-time.After(time.Millisecond): // nothing tells of it
		case <-ctx.Done():
			t.Fatal(context.Cause(ctx))
		}
	}
	return id
}

// Lasting starts a command on a thread that lasts as long as the command: one with a Pdeathsig dies with the thread that
// has started it, and a thread ends with a goroutine that has locked it. wait, which may be called at once, returns how
// the command has ended.
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
