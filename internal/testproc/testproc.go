// Package testproc starts processes that end with their test.
package testproc

import (
	"os/exec"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// Start starts a command, which is killed at the test's end. Its input, if none is
// given, stays empty and open until then.
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
	return id
}
