package config

import (
	"fmt"
	"regexp"
	"strings"
)

// Handler describes how VMs are created for pods with a RuntimeClass of that handler.
type Handler struct {
	// Cold boots each VM, and NoFork clones each VM.
	Cold, NoFork bool
	// Accel is "kvm" or "tcg". If it is empty, it is probed.
	Accel string
}

// handlerName is Kubernetes' pattern for handler names.
var handlerName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// ParseHandlers parses handlers of the form NAME or NAME=OPTION,….
func ParseHandlers(texts []string) (map[string]Handler, error) {
	all := map[string]Handler{}
	for _, text := range texts {
		name, options, some := strings.Cut(text, "=")
		if !handlerName.MatchString(name) {
			return nil, fmt.Errorf("runtime-handler %q: its name must consist of lower-case letters, digits and '-'", text)
		}
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("runtime-handler %q: the name is used twice", text)
		}
		var h Handler
		if some {
			for option := range strings.SplitSeq(options, ",") {
				switch {
				case option == "cold":
					h.Cold = true
				case option == "no-fork":
					h.NoFork = true
				case (option == "kvm" || option == "tcg") && (h.Accel == "" || h.Accel == option):
					h.Accel = option
				default:
					return nil, fmt.Errorf("runtime-handler %q: option %q must be cold, no-fork, or one of kvm and tcg", text, option)
				}
			}
		}
		all[name] = h
	}
	return all, nil
}
