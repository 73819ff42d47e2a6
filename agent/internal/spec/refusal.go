package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// refusal explains to the user why a command cannot run.
type refusal struct {
	text  string
	class error
}

func (r *refusal) Error() string { return r.text }

func (r *refusal) Unwrap() error { return r.class }

// worded is an error that can say in the words of runc why a command cannot run.
type worded interface{ Words(command string) string }

// Words returns the error of a process that cannot run, of err's class, in the words of runc, which clients of OCI
// runtimes match; nil for any other error.
func Words(process json.RawMessage, err error) error {
	var p struct{ Args []string }
	var w worded
	if json.Unmarshal(process, &p) != nil || len(p.Args) == 0 || !errors.As(err, &w) {
		return nil //nolint:nilerr // another error
	}
	text := w.Words(p.Args[0])
	if text == "" {
		return nil
	}
	return &refusal{text, err}
}

// Invalid returns err as an error of the class errdefs.ErrInvalidArgument alone.
func Invalid(err error) error { return &refusal{err.Error(), errdefs.ErrInvalidArgument} }

// Refusal returns the error, in words for its user, of an exec with a missing command or one that cannot be executed;
// nil for any other error.
func Refusal(process json.RawMessage, err error) error {
	var p struct{ Args []string }
	if json.Unmarshal(process, &p) != nil || len(p.Args) == 0 {
		return nil //nolint:nilerr // a process without a command has its own error
	}
	name := p.Args[0]
	switch isPath := strings.Contains(name, "/"); {
	case errors.Is(err, agentv1.ErrNoCommand) && isPath:
		return &refusal{fmt.Sprintf("exec: %.200s: no such file in the container", name), agentv1.ErrNoCommand}
	case errors.Is(err, agentv1.ErrNoCommand):
		return &refusal{fmt.Sprintf("exec: %.200s: not found in the container's PATH", name), agentv1.ErrNoCommand}
	case errors.Is(err, agentv1.ErrNotExec):
		why := "permission denied, or not a program"
		return &refusal{fmt.Sprintf("exec: %.200s: cannot be run: %s", name, why), agentv1.ErrNotExec}
	}
	return nil
}
