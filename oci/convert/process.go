package convert

import (
	"math"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/oci/fields"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// ProcessOptions are facts about the container of an exec.
type ProcessOptions struct {
	Strict bool
	// VCPUs is the number of the VM's CPUs; 0 means unknown.
	VCPUs int
}

// Process converts the process of an exec. It does not change p. Without rlimits the process gets the container's.
// Errors are as in Bundle.
func Process(p *specs.Process, o ProcessOptions) (*specs.Process, []Note, error) {
	if p == nil {
		return nil, nil, invalid("process", "there is none")
	}
	n := notes{strict: o.Strict}
	fields.Strings(p, func(path, text string) {
		if strings.ContainsRune(text, 0) {
			n.fail(invalid("process."+path, "%.64q has a NUL byte", text))
		}
	})
	out := fields.Select(p, "process", n.report)
	if n.err == nil {
		n.fail(n.process(out, o.VCPUs))
	}
	if n.err != nil {
		return nil, nil, n.err
	}
	return out, n.list, nil
}

// process converts the container's first process. Without a VM of its own, the number of CPUs is unknown.
func (c *conversion) process() error {
	vcpus := 0
	if c.plan.Kind != oci.Container {
		if size, err := sizing.SizeOf(c.plan.Size, nil, sizing.Host{}, sizing.Default); err == nil {
			vcpus = size.VCPUs
		}
	}
	p := c.guest.Process
	if err := c.notes.process(p, vcpus); err != nil {
		return err
	}
	for _, usual := range oci.DefaultRlimits() {
		if !slices.ContainsFunc(p.Rlimits, func(of specs.POSIXRlimit) bool { return of.Type == usual.Type }) {
			p.Rlimits = append(p.Rlimits, usual)
		}
	}
	return nil
}

// process checks a process for the guest.
func (n *notes) process(p *specs.Process, vcpus int) error {
	switch {
	case len(p.Args) == 0: // the guest refuses an empty name in the words of other runtimes
		return invalid("process.args", "there is no command")
	case !path.IsAbs(p.Cwd):
		return invalid("process.cwd", "%.200q must be an absolute path", p.Cwd)
	case p.User.UID == math.MaxUint32 || p.User.GID == math.MaxUint32 || slices.Contains(p.User.AdditionalGids, math.MaxUint32):
		return invalid("process.user", "the kernel takes the number %d for no change", uint32(math.MaxUint32))
	case p.User.Umask != nil && *p.User.Umask > 0o777:
		return invalid("process.user.umask", "%#o", *p.User.Umask)
	case p.OOMScoreAdj != nil && (*p.OOMScoreAdj < -1000 || *p.OOMScoreAdj > 1000):
		return invalid("process.oomScoreAdj", "%d must be from -1000 to 1000", *p.OOMScoreAdj)
	case p.ConsoleSize != nil && (p.ConsoleSize.Height > math.MaxUint16 || p.ConsoleSize.Width > math.MaxUint16):
		return invalid("process.consoleSize", "%d × %d is more than a terminal can have", p.ConsoleSize.Width, p.ConsoleSize.Height)
	}
	n.capabilities(p.Capabilities)
	if err := n.rlimits(p); err != nil {
		return err
	}
	return n.scheduling(p, vcpus)
}

// capabilities removes names that the guest's kernel does not have.
func (n *notes) capabilities(c *specs.LinuxCapabilities) {
	if c == nil {
		return
	}
	known := oci.AllCapabilities()
	for _, set := range []struct {
		name string
		list *[]string
	}{
		{"bounding", &c.Bounding}, {"effective", &c.Effective}, {"inheritable", &c.Inheritable},
		{"permitted", &c.Permitted}, {"ambient", &c.Ambient},
	} {
		*set.list = slices.DeleteFunc(*set.list, func(name string) bool {
			unknown := !slices.Contains(known, name)
			if unknown {
				n.ignore("process.capabilities."+set.name, "the guest's kernel has no such capability: "+quote(name))
			}
			return unknown
		})
	}
}

// rlimits checks the resource limits.
func (n *notes) rlimits(p *specs.Process) error {
	const field = "process.rlimits"
	seen := map[string]bool{}
	for i := range p.Rlimits {
		limit := &p.Rlimits[i]
		switch {
		case !oci.KnownRlimit(limit.Type):
			return invalid(field, "unknown type %.32q", limit.Type)
		case seen[limit.Type]:
			return invalid(field, "a second %s", limit.Type)
		case limit.Soft > limit.Hard:
			return invalid(field, "%s: the soft limit %d is more than the hard limit %d", limit.Type, limit.Soft, limit.Hard)
		}
		seen[limit.Type] = true
		if limit.Type == "RLIMIT_NOFILE" && limit.Hard > oci.MaxFiles {
			n.ignore(field, "more than 1048576 open files: the guest's kernel allows no more")
			limit.Hard, limit.Soft = oci.MaxFiles, min(limit.Soft, oci.MaxFiles)
		}
	}
	return nil
}
