package crun

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]error{
		"executable file `x` not found in $PATH: No such file or directory": agentv1.ErrNoCommand,
		"open executable: Permission denied":                                agentv1.ErrNotExec,
		"open executable: Operation not permitted":                          agentv1.ErrNotExec,
		"open executable: No such file or directory":                        agentv1.ErrNoCommand,
		"the container `c` is not running":                                  agentv1.ErrBusy,
		"mount `proc` to `proc`: Operation not permitted":                   nil,
	} {
		err := classify("create", message, unix.WaitStatus(1<<8))
		if want != nil && !errors.Is(err, want) || want == nil && (errors.Is(err, agentv1.ErrNoCommand) || errors.Is(err, agentv1.ErrNotExec)) {
			t.Errorf("%s: %v", message, err)
		}
		if !strings.Contains(err.Error(), message) {
			t.Errorf("%s is lost in %v", message, err)
		}
	}
	if err := classify("create", "no message", unix.WaitStatus(9)); !strings.Contains(err.Error(), "signal 9") {
		t.Error(err)
	}
}
