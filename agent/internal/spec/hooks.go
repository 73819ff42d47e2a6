package spec

import (
	"encoding/json"
	"fmt"
	"path"

	"github.com/containerd/errdefs"
)

// startContainer is the name of the hooks that crun runs inside the container, before its first process.
const startContainer = "startContainer"

// hooks checks the hooks. All but startContainer's are the host's.
func (s *Spec) hooks() error {
	var hooks map[string][]json.RawMessage
	if err := s.top.get("hooks", &hooks); err != nil {
		return err
	}
	delete(s.top, "hooks")
	for name, list := range hooks {
		if len(list) > 0 && name != startContainer {
			return fmt.Errorf("hooks.%.32s would run on the host: %w", name, errdefs.ErrInvalidArgument)
		}
	}
	start := hooks[startContainer]
	for i, raw := range start {
		var hook struct{ Path string }
		if err := json.Unmarshal(raw, &hook); err != nil {
			return fmt.Errorf("hooks.%s[%d]: %w: %w", startContainer, i, errdefs.ErrInvalidArgument, err)
		}
		if !path.IsAbs(hook.Path) {
			return fmt.Errorf("hooks.%s[%d]: path %.128q must be absolute: %w", startContainer, i, hook.Path, errdefs.ErrInvalidArgument)
		}
	}
	if len(start) == 0 {
		return nil
	}
	return s.top.set("hooks", map[string][]json.RawMessage{startContainer: start})
}
