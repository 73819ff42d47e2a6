package convert

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// Load converts the config.json of the bundle in Options.Bundle.
func Load(o Options) (*Plan, error) {
	spec, err := oci.LoadBundle(o.Bundle)
	if err != nil {
		return nil, err
	}
	return Bundle(spec, o)
}

// Bundle converts a specification. Errors match oci.ErrInvalid or oci.ErrNotSupported, and name the field. It does not
// change spec.
func Bundle(spec *specs.Spec, o Options) (*Plan, error) {
	if spec == nil || spec.Process == nil || spec.Root == nil {
		return nil, fmt.Errorf("%w: no process or no root", oci.ErrInvalid)
	}
	if o.Host == nil {
		o.Host = Local{}
	}
	if o.Defaults == (sizing.Demand{}) {
		o.Defaults = DefaultSize
	}
	c := &conversion{Options: o, spec: spec}
	kind, sandbox, err := oci.Role(spec.Annotations, o.ID)
	if err != nil {
		return nil, err
	}
	guest := *spec
	guest.Hooks, guest.Annotations, guest.Mounts = nil, nil, nil
	c.plan = &Plan{
		ID: o.ID, Bundle: o.Bundle, Kind: kind, SandboxID: sandbox, Guest: &guest,
		Root: containerv1.Share{Name: TreeName(0)}, Size: o.Defaults, Annotations: spec.Annotations,
	}
	root := spec.Root.Path
	if !filepath.IsAbs(root) {
		root = filepath.Join(o.Bundle, root)
	}
	c.plan.Trees = []Tree{{Source: root, Destination: "/", Dir: true, Recursive: true}}
	for _, m := range spec.Mounts {
		c.mount(m)
	}
	return c.plan, nil
}

// conversion is the state of one call of Bundle.
type conversion struct {
	Options
	spec *specs.Spec
	plan *Plan
}

func (c *conversion) mount(m specs.Mount) {
	if m.Type != "bind" {
		c.plan.Guest.Mounts = append(c.plan.Guest.Mounts, m)
		return
	}
	at := path.Clean("/" + m.Destination)
	tree := Tree{Source: m.Source, Destination: at, Dir: true, Recursive: strings.Contains(strings.Join(m.Options, ","), "rbind")}
	ours := containerv1.Mount{Destination: at, Source: containerv1.Share{Name: TreeName(len(c.plan.Trees))}, Options: m.Options}
	c.plan.Trees = append(c.plan.Trees, tree)
	kind, source, options := ours.Encode()
	c.plan.Guest.Mounts = append(c.plan.Guest.Mounts, specs.Mount{Destination: at, Type: kind, Source: source, Options: options})
}
