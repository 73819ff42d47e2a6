package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// refusal says why a command cannot be run, in words for the user who gave it.
type refusal struct {
	text  string
	class error
}

func (r *refusal) Error() string { return r.text }

func (r *refusal) Unwrap() error { return r.class }

// Refusal is the error of an exec whose command is missing or cannot be run, as its user reads it; nil for any other.
func Refusal(process json.RawMessage, err error) error {
	var p struct{ Args []string }
	if json.Unmarshal(process, &p) != nil || len(p.Args) == 0 {
		return nil //nolint:nilerr // a process without a name is no such refusal
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
