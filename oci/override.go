package oci

import (
	"fmt"
	"path"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Override is what an exec has in place of its container's own; what is empty stays.
type Override struct {
	User string   // as the image knows it: "name", "name:group", "1:2"
	Dir  string   // absolute
	Env  []string // NAME=VALUE
}

// Apply changes a process that Exec has made. Errors match ErrInvalid.
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
		// The groups that the pod gives to its containers' user are not another's.
		p.User = specs.User{Username: o.User}
	}
	return nil
}
