package convert

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/oci/fields"
)

// Namespaces are the container's namespaces.
type Namespaces struct{ Network, IPC, PID, UTS, User, Mount, Cgroup Namespace }

// Namespace is one of a container's namespaces.
type Namespace struct {
	Kind NamespaceKind
	Path string // for ByPath
}

// NamespaceKind selects a namespace.
type NamespaceKind string

// The kinds of namespaces.
const (
	OfHost NamespaceKind = ""     // the specification lists none: the client's own
	Own    NamespaceKind = "own"  // a new one
	ByPath NamespaceKind = "path" // the existing one at Namespace.Path
)

// role decides by annotations. Namespaces can overrule it.
func (c *conversion) role() (err error) {
	c.plan.Kind, c.plan.SandboxID, err = oci.Role(c.spec.Annotations, c.ID)
	return err
}

// namespaces reads the namespaces, and decides whether the container joins a VM.
func (c *conversion) namespaces() error {
	n := &c.plan.Namespaces
	all := map[specs.LinuxNamespaceType]*Namespace{
		specs.NetworkNamespace: &n.Network, specs.IPCNamespace: &n.IPC, specs.PIDNamespace: &n.PID, specs.UTSNamespace: &n.UTS,
		specs.UserNamespace: &n.User, specs.MountNamespace: &n.Mount, specs.CgroupNamespace: &n.Cgroup,
	}
	for i, ns := range c.host.Namespaces {
		field := fmt.Sprintf("linux.namespaces[%d]", i)
		to := all[ns.Type]
		switch {
		case ns.Type == specs.TimeNamespace:
			return unsupported(field, "time: a VM has one clock")
		case to == nil:
			return invalid(field, "unknown type %.32q", ns.Type)
		case to.Kind != OfHost:
			return invalid(field, "a second %s namespace", ns.Type)
		case ns.Path != "" && !filepath.IsAbs(ns.Path):
			return invalid(field, "path %.200q must be absolute", ns.Path)
		case ns.Path == "":
			to.Kind = Own
		default:
			*to = Namespace{ByPath, ns.Path}
		}
	}
	if n.Mount.Kind == ByPath {
		return unsupported("linux.namespaces", "mount namespace %.200q: the container's mounts are in its VM", n.Mount.Path)
	}
	if n.Cgroup.Kind == ByPath {
		c.ignore("linux.namespaces", fmt.Sprintf("cgroup namespace %.200q: the guest has cgroups of its own", n.Cgroup.Path))
	}
	if err := c.mappings(); err != nil {
		return err
	}
	join, err := c.join()
	if err != nil {
		return err
	}
	return c.guestNamespaces(join)
}

// join asks whether the container joins a VM.
func (c *conversion) join() (Join, error) {
	n := c.plan.Namespaces
	if c.Join == nil || n.Network.Kind != ByPath && n.IPC.Kind != ByPath && n.PID.Kind != ByPath && n.UTS.Kind != ByPath {
		return Join{}, nil
	}
	join, err := c.Join(n)
	if err != nil || join == nil {
		return Join{}, err
	}
	if c.plan.Kind == oci.Sandbox {
		return Join{}, invalid("linux.namespaces", "a pod's first container joins the VM of %.64s", join.SandboxID)
	}
	c.plan.Kind, c.plan.SandboxID = oci.Container, join.SandboxID
	return *join, nil
}

// guestNamespaces writes the namespaces of the guest's specification. A container always has mounts and cgroups of its
// own there. An absent IPC or UTS namespace is the VM's.
func (c *conversion) guestNamespaces(join Join) error {
	n := c.plan.Namespaces
	out := []specs.LinuxNamespace{{Type: specs.MountNamespace}, {Type: specs.CgroupNamespace}}
	for _, ns := range []struct {
		kind specs.LinuxNamespaceType
		is   Namespace
		join string
	}{{specs.PIDNamespace, n.PID, join.PID}, {specs.IPCNamespace, n.IPC, join.IPC}, {specs.UTSNamespace, n.UTS, join.UTS}} {
		pid := ns.kind == specs.PIDNamespace
		switch {
		case ns.is.Kind == OfHost && pid:
			// The agent's own processes stay hidden.
			out = append(out, specs.LinuxNamespace{Type: ns.kind, Path: agentv1.Namespace("")})
			c.ignore("linux.namespaces", "without a pid namespace the container sees the processes of its VM, not the host's")
		case ns.is.Kind == Own && (pid || c.plan.Kind == oci.Container):
			out = append(out, specs.LinuxNamespace{Type: ns.kind})
		case ns.is.Kind == ByPath && ns.join != "":
			out = append(out, specs.LinuxNamespace{Type: ns.kind, Path: ns.join})
		case ns.is.Kind == ByPath && (pid || c.plan.Kind != oci.Container):
			return unsupported("linux.namespaces", "%s namespace %.200q belongs to no container of the VM", ns.kind, ns.is.Path)
		}
	}
	c.linux.Namespaces = out
	return nil
}

// mappings checks the mappings of the user namespace.
func (c *conversion) mappings() error {
	user := c.plan.Namespaces.User
	for _, ids := range []struct {
		field string
		list  []specs.LinuxIDMapping
	}{{"linux.uidMappings", c.host.UIDMappings}, {"linux.gidMappings", c.host.GIDMappings}} {
		switch {
		case len(ids.list) > 0 && user.Kind == OfHost:
			return invalid(ids.field, "there is no user namespace for them")
		case len(ids.list) == 0 && user.Kind == Own:
			return invalid(ids.field, "a new user namespace needs them")
		}
		if err := checkMappings(ids.field, ids.list); err != nil {
			return err
		}
	}
	c.plan.UIDs, c.plan.GIDs = fields.Copy(c.host.UIDMappings), fields.Copy(c.host.GIDMappings)
	return nil
}

// maxMappings is the kernel's bound.
const maxMappings = 340

func checkMappings(field string, list []specs.LinuxIDMapping) error {
	if len(list) > maxMappings {
		return invalid(field, "more than %d", maxMappings)
	}
	for i, m := range list {
		if m.Size == 0 || m.ContainerID+m.Size < m.ContainerID || m.HostID+m.Size < m.HostID {
			return invalid(field, "[%d]: %d ids from %d and %d", i, m.Size, m.ContainerID, m.HostID)
		}
	}
	return nil
}

// names sets the names of the VM, or of the container's UTS namespace.
func (c *conversion) names() error {
	const sysctl = "kernel.domainname"
	if name, ok := c.linux.Sysctl[sysctl]; ok {
		delete(c.linux.Sysctl, sysctl)
		if c.guest.Domainname != "" && c.guest.Domainname != name {
			return invalid("domainname", "it differs from the sysctl %s", sysctl)
		}
		c.guest.Domainname = name
	}
	for _, one := range []struct {
		field    string
		name, vm *string
	}{{"hostname", &c.guest.Hostname, &c.plan.Hostname}, {"domainname", &c.guest.Domainname, &c.plan.Domainname}} {
		switch name := *one.name; {
		case len(name) > 64 || strings.ContainsAny(name, "\n/"):
			return invalid(one.field, "%.80q must have at most 64 characters, without / and line breaks", name)
		case c.plan.Kind != oci.Container:
			*one.vm = name
		case name != "" && c.plan.Namespaces.UTS.Kind != Own:
			// Clients repeat the pod's name with the namespace's path.
			if *one.name = ""; c.plan.Namespaces.UTS.Kind == OfHost {
				c.ignore(one.field, "the container shares the UTS namespace of its pod")
			}
		}
	}
	return nil
}

// sysctls checks the kernel parameters. A pod's first container sets them for the VM.
func (c *conversion) sysctls() error {
	if err := oci.CheckSysctls(c.linux.Sysctl); err != nil {
		return fmt.Errorf("linux.sysctl: %w", err)
	}
	if c.plan.Kind != oci.Container {
		c.plan.Sysctls, c.linux.Sysctl = c.linux.Sysctl, nil
	}
	return nil
}

// netDevices checks the names of network devices.
func (c *conversion) netDevices() error {
	if len(c.host.NetDevices) == 0 {
		return nil
	}
	if c.plan.Namespaces.Network.Kind == OfHost {
		return invalid("linux.netDevices", "the container has no network namespace of its own")
	}
	c.plan.NetDevices = map[string]string{}
	taken := map[string]string{}
	for from, device := range c.host.NetDevices {
		to := device.Name
		if to == "" {
			to = from
		}
		for _, name := range []string{from, to} {
			if name == "" || name == "." || name == ".." || len(name) > 15 || strings.ContainsAny(name, "/: \t\n\v\f\r%") {
				return invalid("linux.netDevices", "%.32q: invalid name %.32q", from, name)
			}
		}
		if other, ok := taken[to]; ok {
			return invalid("linux.netDevices", "%q and %q get the name %q", min(from, other), max(from, other), to)
		}
		taken[to], c.plan.NetDevices[from] = from, to
	}
	return nil
}
