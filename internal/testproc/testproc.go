// Package testproc starts processes that end with their test.
package testproc

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
)

// Start starts a command, which is killed at the test's end, and returns when it shows its
// arguments: a process has none for a moment after its program has been loaded. Its input, if
// none is given, stays empty and open until the end.
func Start(t testing.TB, cmd *exec.Cmd) procid.ID {
	t.Helper()
	if cmd.Stdin == nil {
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
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
