package spec

import (
	"fmt"
	"maps"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/oci"
)

// linux applies the container's configuration to the defaults.
func linux(out *specs.Linux, in Input, caps *specs.LinuxCapabilities) error {
	security := in.Container.GetLinux().GetSecurityContext()
	if err := CheckLabels(security); err != nil {
		return err
	}
	if p := security.GetApparmorProfile(); security.GetApparmor() == nil && p != "" && p != "unconfined" { //nolint:staticcheck // old clients'
		return fmt.Errorf("%w: AppArmor: the guest does not support it", oci.ErrNotSupported)
	}
	var err error
	if out.Namespaces, err = namespaces(security.GetNamespaceOptions()); err != nil {
		return err
	}
	if out.Seccomp, err = seccomp(security, in.Seccomp, caps); err != nil {
		return err
	}
	limits(out.Resources, in.Container.GetLinux().GetResources())
	// A kubelet sends two empty lists for "nothing masked" (procMount: Unmasked), which look like unset lists. But a
	// kubelet always sets seccomp. Other clients without lists get the defaults, so that the container cannot write the
	// guest kernel's settings.
	masked, readonly := security.GetMaskedPaths(), security.GetReadonlyPaths()
	if masked != nil || readonly != nil || security.GetSeccomp() != nil {
		out.MaskedPaths, out.ReadonlyPaths = masked, readonly
	}
	if security.GetPrivileged() {
		out.MaskedPaths, out.ReadonlyPaths = nil, nil
		out.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
	}
	return nil
}

// CheckLabels rejects SELinux labels and AppArmor profiles, which the guest cannot enforce. It is for containers and
// pods.
func CheckLabels(security interface {
	GetSelinuxOptions() *runtimeapi.SELinuxOption
	GetApparmor() *runtimeapi.SecurityProfile
},
) error {
	if labelled(security.GetSelinuxOptions()) {
		return fmt.Errorf("%w: SELinux options: the guest has no policy", oci.ErrNotSupported)
	}
	if p := security.GetApparmor(); p != nil && p.GetProfileType() != runtimeapi.SecurityProfile_Unconfined {
		return fmt.Errorf("%w: AppArmor: the guest does not support it", oci.ErrNotSupported)
	}
	return nil
}

// labelled reports whether a label asks for more than the level s0, which is the default without a policy.
func labelled(o *runtimeapi.SELinuxOption) bool {
	return o.GetUser() != "" || o.GetRole() != "" || o.GetType() != "" || o.GetLevel() != "" && o.GetLevel() != "s0"
}

// namespaces returns the container's own namespaces; it shares the VM's others. There is no user namespace: the pod has
// the users of its own kernel.
func namespaces(options *runtimeapi.NamespaceOption) ([]specs.LinuxNamespace, error) {
	own := []specs.LinuxNamespace{{Type: specs.MountNamespace}, {Type: specs.CgroupNamespace}}
	pid := specs.LinuxNamespace{Type: specs.PIDNamespace}
	switch mode := options.GetPid(); mode {
	case runtimeapi.NamespaceMode_CONTAINER:
	case runtimeapi.NamespaceMode_POD: // the CRI's default; a kubelet sends CONTAINER
		pid.Path = agentv1.Namespace("")
	case runtimeapi.NamespaceMode_TARGET:
		if options.GetTargetId() == "" {
			return nil, fmt.Errorf("%w: the target container has no id (target_id)", oci.ErrInvalid)
		}
		pid.Path = agentv1.Namespace(options.GetTargetId())
	default:
		return nil, fmt.Errorf("%w: pid namespace %v", oci.ErrNotSupported, mode)
	}
	return append(own, pid), nil
}

// OOMGroup is the cgroup v2 file that makes a container without memory die as a whole. A kubelet asks for that on hosts
// with cgroup v2. Here each container with a limit has it, unless its unified resources set another value.
const OOMGroup = "memory.oom.group"

// limits adds a container's limits. Zero means unset in the CRI and is left out.
func limits(out *specs.LinuxResources, r *runtimeapi.LinuxContainerResources) {
	var cpu specs.LinuxCPU
	if period := r.GetCpuPeriod(); period > 0 {
		value := uint64(period)
		cpu.Period = &value
	}
	if quota := r.GetCpuQuota(); quota != 0 {
		cpu.Quota = &quota
	}
	if shares := r.GetCpuShares(); shares > 0 {
		value := uint64(shares)
		cpu.Shares = &value
	}
	cpu.Cpus, cpu.Mems = r.GetCpusetCpus(), r.GetCpusetMems()
	if cpu != (specs.LinuxCPU{}) {
		out.CPU = &cpu
	}
	if limit := r.GetMemoryLimitInBytes(); limit > 0 {
		out.Memory = &specs.LinuxMemory{Limit: &limit, Swap: &limit}
		out.Unified = map[string]string{OOMGroup: "1"}
	}
	for _, pages := range r.GetHugepageLimits() {
		out.HugepageLimits = append(out.HugepageLimits, specs.LinuxHugepageLimit{Pagesize: pages.GetPageSize(), Limit: pages.GetLimit()})
	}
	if unified := r.GetUnified(); len(unified) > 0 {
		if out.Unified == nil {
			out.Unified = map[string]string{}
		}
		maps.Copy(out.Unified, unified)
	}
}
