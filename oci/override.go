package oci

import (
	"fmt"
	"path"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Override replaces settings of an exec's container. Empty fields keep the container's.
type Override struct {
	User string   // in the image's terms: "name", "name:group", "1:2"
	Dir  string   // absolute
	Env  []string // NAME=VALUE
}

// Apply changes a process from Exec. Errors match ErrInvalid.
func (o Override) Apply(p *specs.Process) error {
	if o.Dir != "" {
		if !path.IsAbs(o.Dir) || strings.ContainsRune(o.Dir, 0) {
			return fmt.Errorf("%w: working directory %q is not absolute", ErrInvalid, o.Dir)
		}
		p.Cwd = o.Dir
	}
	for _, text := range o.Env {
		name, value, given := strings.Cut(text, "=")
		if !given || name == "" || strings.ContainsRune(text, 0) {
			return fmt.Errorf("%w: variable %q is not NAME=VALUE", ErrInvalid, name)
		}
		p.Env = SetEnv(p.Env, name, value)
	}
	if o.User != "" {
		// The pod's groups are only for its containers' own user.
		p.User = specs.User{Username: o.User}
	}
	return nil
}
