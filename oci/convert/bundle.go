package convert

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/oci/fields"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// Load converts the config.json of the bundle in Options.Bundle.
func Load(o Options) (*Plan, error) {
	data, err := oci.ReadBundle(o.Bundle)
	if err != nil {
		return nil, err
	}
	return Decode(data, o)
}

// Decode converts the content of a config.json. Fields that specs.Spec does not have are ignored with a Note.
func Decode(data []byte, o Options) (*Plan, error) {
	spec, err := oci.DecodeBundle(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(o.Bundle, "config.json"), err)
	}
	return bundle(spec, fields.Unknown(data), o)
}

// Bundle converts a specification. Errors match oci.ErrInvalid or oci.ErrNotSupported and name the field, except for
// errors of Options.Join and Options.Host. Bundle does not change spec.
func Bundle(spec *specs.Spec, o Options) (*Plan, error) { return bundle(spec, nil, o) }

// conversion is the state of one call of Bundle.
type conversion struct {
	notes
	Options
	spec *specs.Spec // the original
	plan *Plan
	// guest and linux are the parts of the plan's specification.
	guest *specs.Spec
	linux *specs.Linux
	// host is the original's linux; both are never nil.
	host *specs.Linux
	// propagate is set if the mounts without a propagation of their own receive mounts from the host.
	propagate bool
}

func bundle(spec *specs.Spec, unknown []string, o Options) (*Plan, error) {
	if spec == nil || spec.Process == nil || spec.Root == nil || spec.Root.Path == "" {
		return nil, fmt.Errorf("%w: no process or no root", oci.ErrInvalid)
	}
	if o.Host == nil {
		o.Host = Local{}
	}
	if o.Defaults == (sizing.Demand{}) {
		o.Defaults = DefaultSize
	}
	if !filepath.IsAbs(o.Bundle) {
		return nil, invalid("bundle", "%.200q must be an absolute path", o.Bundle)
	}
	if err := checkText(spec); err != nil {
		return nil, err
	}
	c := &conversion{Options: o, spec: spec, host: spec.Linux}
	if c.host == nil {
		c.host = &specs.Linux{}
	}
	strict, err := isStrict(spec.Annotations)
	if err != nil {
		return nil, err
	}
	c.strict = o.Strict || strict
	for _, field := range unknown {
		c.ignore(field, "this version does not know it")
	}
	c.guest = fields.Select(spec, "", func(path string, e fields.Entry) {
		if !strings.HasPrefix(path, resourcesField+".") { // these have a step of their own
			c.report(path, e)
		}
	})
	if c.guest.Linux == nil {
		c.guest.Linux = &specs.Linux{}
	}
	c.linux = c.guest.Linux
	c.guest.Version, c.guest.Mounts = oci.Version, nil
	c.guest.Annotations = map[string]string{agentv1.Verbatim: "true"}
	c.plan = &Plan{
		ID: o.ID, Bundle: o.Bundle, Guest: c.guest, Root: containerv1.Share{Name: TreeName(0)},
		Annotations: fields.Copy(spec.Annotations), CgroupsPath: c.host.CgroupsPath,
	}
	for _, step := range []func() error{
		c.version, c.role, c.namespaces, c.names, c.sysctls, c.root, c.mounts, c.volumes, c.devices, c.security, c.resources, c.hooks,
		c.size, c.process, c.boot, c.annotations, c.cgroup, c.netDevices,
	} {
		if c.err == nil {
			c.fail(step())
		}
	}
	if c.err != nil {
		return nil, c.err
	}
	c.plan.Ignored = c.list
	return c.plan, nil
}

// checkText refuses strings with a NUL byte, which would end early in a system call.
func checkText(spec *specs.Spec) (err error) {
	fields.Strings(spec, func(path, text string) {
		if err == nil && strings.ContainsRune(text, 0) {
			err = invalid(path, "%.64q has a NUL byte", text)
		}
	})
	return err
}

func (c *conversion) version() error {
	if v := c.spec.Version; !strings.HasPrefix(v, "1.") {
		return unsupported("ociVersion", "%.32q: Bulkhead supports 1.x", v)
	}
	return nil
}

// root adds the first tree.
func (c *conversion) root() error {
	at := c.spec.Root.Path
	if !filepath.IsAbs(at) {
		at = filepath.Join(c.Bundle, at)
	}
	node, err := c.Host.Node(at)
	if err != nil {
		return fmt.Errorf("root.path: %w", err)
	}
	if node.Type != Dir {
		return invalid("root.path", "%.200q is a %s, not a directory", at, node.Type)
	}
	c.guest.Root.Path = "rootfs"
	tree := Tree{Source: filepath.Clean(at), Destination: "/", Dir: true, Recursive: true}
	switch p := c.host.RootfsPropagation; p {
	case "", "private", "rprivate", "unbindable", "runbindable":
	case "slave", "rslave", "shared", "rshared":
		tree.Follow, c.propagate = true, true
	default:
		return invalid("linux.rootfsPropagation", "%.64q", p)
	}
	if c.spec.Root.Readonly {
		tree.Attributes.Set = attrReadOnly
	}
	c.plan.Trees = []Tree{tree}
	return nil
}

func (c *conversion) cgroup() error {
	path := c.plan.CgroupsPath
	for part := range strings.SplitSeq(path, "/") {
		if part == ".." {
			return invalid("linux.cgroupsPath", "%.200q leads out of the hierarchy", path)
		}
	}
	if len(path) > 4095 || strings.ContainsRune(path, '\n') {
		return invalid("linux.cgroupsPath", "%.200q", path)
	}
	return nil
}
