package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// refusal explains to the user why a command cannot run.
type refusal struct {
	text  string
	class error
}

func (r *refusal) Error() string { return r.text }

func (r *refusal) Unwrap() error { return r.class }

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
