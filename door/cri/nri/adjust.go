package nri

import (
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"

	"github.com/bulkhead-project/bulkhead/engine/failure"
)

// ours is the prefix of the annotations that pass a container's permissions to the guest.
const ours = "io.bulkhead."

// adjust applies plugins' adjustments to a specification. env is the resulting environment: the adjustments do not show
// removed variables.
func adjust(spec *specs.Spec, a *api.ContainerAdjustment, env []string) error {
	if err := check(a); err != nil {
		return err
	}
	for key, value := range a.GetAnnotations() {
		if spec.Annotations == nil {
			spec.Annotations = map[string]string{}
		}
		if name, removed := api.IsMarkedForRemoval(key); removed {
			delete(spec.Annotations, name)
			continue
		}
		spec.Annotations[key] = value
	}
	spec.Process.Env = env
	if args := a.GetArgs(); len(args) > 0 {
		if args[0] == "" { // the mark for replacing earlier plugins' arguments
			args = args[1:]
		}
		spec.Process.Args = args
	}
	for _, limit := range a.GetRlimits() {
		spec.Process.Rlimits = slices.DeleteFunc(spec.Process.Rlimits, func(l specs.POSIXRlimit) bool { return l.Type == limit.GetType() })
		spec.Process.Rlimits = append(spec.Process.Rlimits,
			specs.POSIXRlimit{Type: limit.GetType(), Hard: limit.GetHard(), Soft: limit.GetSoft()})
	}
	if score := a.GetLinux().GetOomScoreAdj().Get(); score != nil {
		spec.Process.OOMScoreAdj = score
	}
	limits(spec.Linux.Resources, a.GetLinux().GetResources().ToOCI())
	return nil
}

// limits overwrites the limits of a specification with those in in.
func limits(out, in *specs.LinuxResources) {
	if in == nil {
		return
	}
	if c := in.CPU; c != nil {
		if out.CPU == nil {
			out.CPU = &specs.LinuxCPU{}
		}
		over(&out.CPU.Shares, c.Shares)
		over(&out.CPU.Quota, c.Quota)
		over(&out.CPU.Period, c.Period)
		if c.Cpus != "" {
			out.CPU.Cpus = c.Cpus
		}
		if c.Mems != "" {
			out.CPU.Mems = c.Mems
		}
		if *out.CPU == (specs.LinuxCPU{}) {
			out.CPU = nil
		}
	}
	if m := in.Memory; m != nil && *m != (specs.LinuxMemory{}) {
		if out.Memory == nil {
			out.Memory = &specs.LinuxMemory{}
		}
		over(&out.Memory.Limit, m.Limit)
		over(&out.Memory.Reservation, m.Reservation)
		over(&out.Memory.Swap, m.Swap)
		if m.Limit != nil && m.Swap == nil { // no swap, as without plugins
			out.Memory.Swap = m.Limit
		}
	}
	for _, h := range in.HugepageLimits {
		out.HugepageLimits = slices.DeleteFunc(out.HugepageLimits, func(l specs.LinuxHugepageLimit) bool { return l.Pagesize == h.Pagesize })
		out.HugepageLimits = append(out.HugepageLimits, h)
	}
	if in.Pids != nil {
		out.Pids = in.Pids
	}
	for key, value := range in.Unified {
		if out.Unified == nil {
			out.Unified = map[string]string{}
		}
		out.Unified[key] = value
	}
}

func over[T any](out **T, in *T) {
	if in != nil {
		*out = in
	}
}

// check refuses adjustments that a VM does not support or that plugins may not make. The error names the adjustment.
func check(a *api.ContainerAdjustment) error {
	const cannot = "a container in a virtual machine cannot have a plugin's "
	refuse := func(format string, args ...any) error { return failure.Unsupported(cannot+format, args...) }
	l := a.GetLinux()
	for key := range a.GetAnnotations() {
		name, _ := api.IsMarkedForRemoval(key)
		if strings.HasPrefix(name, ours) {
			return failure.Invalid(cannot+"annotation %s", name)
		}
	}
	for _, e := range a.GetEnv() {
		if key, _ := e.IsMarkedForRemoval(); key == "" || strings.ContainsAny(key, "=\x00") || strings.ContainsRune(e.GetValue(), 0) {
			return failure.Invalid(cannot+"variable %q", key)
		}
	}
	switch h := a.GetHooks(); {
	case len(a.GetMounts()) > 0:
		return refuse("mount of %s at %s", a.GetMounts()[0].GetSource(), a.GetMounts()[0].GetDestination())
	case len(h.GetPrestart())+len(h.GetCreateRuntime())+len(h.GetCreateContainer())+
		len(h.GetStartContainer())+len(h.GetPoststart())+len(h.GetPoststop()) > 0:
		return refuse("hooks, which run on the host")
	case len(a.GetCDIDevices()) > 0:
		return refuse("CDI device %s", a.GetCDIDevices()[0].GetName())
	case len(l.GetDevices()) > 0:
		return refuse("device %s", l.GetDevices()[0].GetPath())
	case l.GetCgroupsPath() != "":
		return refuse("cgroup %s", l.GetCgroupsPath())
	case proto.Size(l.GetIoPriority()) > 0: // the library leaves empty messages
		return refuse("I/O priority")
	case proto.Size(l.GetSeccompPolicy()) > 0:
		return refuse("seccomp policy")
	case len(l.GetNamespaces()) > 0:
		return refuse("namespace %s", l.GetNamespaces()[0].GetType())
	case len(l.GetSysctl()) > 0:
		return refuse("sysctls: they belong to the pod")
	case len(l.GetNetDevices()) > 0:
		return refuse("network devices")
	case proto.Size(l.GetScheduler()) > 0:
		return refuse("scheduler")
	case proto.Size(l.GetRdt()) > 0:
		return refuse("RDT")
	case proto.Size(l.GetMemoryPolicy()) > 0:
		return refuse("memory policy")
	}
	return checkResources(l.GetResources())
}

// checkResources refuses limits that name a resource of the host.
func checkResources(r *api.LinuxResources) error {
	switch {
	case r.GetBlockioClass().Get() != nil:
		return failure.Unsupported("a container in a virtual machine has no block I/O class (%s)", *r.GetBlockioClass().Get())
	case r.GetRdtClass().Get() != nil:
		return failure.Unsupported("a container in a virtual machine has no RDT class (%s)", *r.GetRdtClass().Get())
	case len(r.GetDevices()) > 0:
		return failure.Unsupported("a plugin's device rules have no effect in a virtual machine")
	}
	return nil
}
