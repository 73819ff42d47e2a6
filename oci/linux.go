package oci

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// pidsLimit bounds the processes of a container where nothing else does: a
// fork bomb must leave the agent room to answer.
const pidsLimit = 16384

func linux(in Input, caps *specs.LinuxCapabilities) (*specs.Linux, error) {
	security := in.Container.GetLinux().GetSecurityContext()
	if security.GetSelinuxOptions() != nil {
		return nil, fmt.Errorf("%w: SELinux options", ErrNotSupported)
	}
	namespaces, err := namespaces(security.GetNamespaceOptions())
	if err != nil {
		return nil, err
	}
	seccomp, err := seccomp(security, in.Seccomp, caps)
	if err != nil {
		return nil, err
	}
	linux := &specs.Linux{
		Namespaces:    namespaces,
		Seccomp:       seccomp,
		Resources:     Resources(in.Container.GetLinux().GetResources()),
		MaskedPaths:   security.GetMaskedPaths(),
		ReadonlyPaths: security.GetReadonlyPaths(),
	}
	if in.ID != "" {
		linux.CgroupsPath = "/" + in.ID
	}
	// Both lists empty is how the kubelet says that nothing is masked
	// (procMount: Unmasked), and on the wire the same as silence. A kubelet is
	// never silent about seccomp; who is gets a container that cannot write the
	// guest kernel's knobs.
	if linux.MaskedPaths == nil && linux.ReadonlyPaths == nil && security.GetSeccomp() == nil {
		linux.MaskedPaths, linux.ReadonlyPaths = maskedPaths(), readonlyPaths()
	}
	pids := int64(pidsLimit)
	linux.Resources.Pids = &specs.LinuxPids{Limit: &pids}
	linux.Resources.Devices = devices()
	if security.GetPrivileged() {
		linux.MaskedPaths, linux.ReadonlyPaths = nil, nil
		linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
	}
	return linux, nil
}

// namespaces are those of the container's own; the machine's are shared. A user
// namespace is none of them: the pod's users are those of its own kernel.
func namespaces(options *runtimeapi.NamespaceOption) ([]specs.LinuxNamespace, error) {
	own := []specs.LinuxNamespace{{Type: specs.MountNamespace}, {Type: specs.CgroupNamespace}}
	pid := specs.LinuxNamespace{Type: specs.PIDNamespace}
	switch mode := options.GetPid(); {
	case mode == runtimeapi.NamespaceMode_CONTAINER:
	case mode == runtimeapi.NamespaceMode_POD && options == nil:
		// The zero value: what a client means that says nothing is the
		// kubelet's default, a namespace for each container.
	case mode == runtimeapi.NamespaceMode_POD:
		pid.Path = agentv1.PIDPod
	case mode == runtimeapi.NamespaceMode_TARGET:
		if options.GetTargetId() == "" {
			return nil, fmt.Errorf("%w: no container is named whose processes are to be seen", ErrInvalid)
		}
		pid.Path = agentv1.PIDTarget + options.GetTargetId()
	default:
		return nil, fmt.Errorf("%w: pid namespace %v", ErrNotSupported, mode)
	}
	return append(own, pid), nil
}

// Resources converts a container's limits. Zero in the CRI means unset and is
// left out, so that the result also serves an update.
func Resources(r *runtimeapi.LinuxContainerResources) *specs.LinuxResources {
	out := &specs.LinuxResources{}
	if r == nil {
		return out
	}
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
	}
	for _, pages := range r.GetHugepageLimits() {
		out.HugepageLimits = append(out.HugepageLimits, specs.LinuxHugepageLimit{Pagesize: pages.GetPageSize(), Limit: pages.GetLimit()})
	}
	if unified := r.GetUnified(); len(unified) > 0 {
		out.Unified = make(map[string]string, len(unified))
		for key, value := range unified {
			out.Unified[key] = value
		}
	}
	return out
}

// devices is the rule of the cgroup: the default devices and no other, mknod
// of any.
func devices() []specs.LinuxDeviceCgroup {
	rule := func(kind string, major, minor int64, access string) specs.LinuxDeviceCgroup {
		rule := specs.LinuxDeviceCgroup{Allow: true, Type: kind, Access: access}
		if major >= 0 {
			rule.Major = &major
		}
		if minor >= 0 {
			rule.Minor = &minor
		}
		return rule
	}
	return []specs.LinuxDeviceCgroup{
		{Allow: false, Access: "rwm"},
		rule("c", -1, -1, "m"),
		rule("b", -1, -1, "m"),
		rule("c", 1, 3, "rwm"),    // null
		rule("c", 1, 5, "rwm"),    // zero
		rule("c", 1, 7, "rwm"),    // full
		rule("c", 1, 8, "rwm"),    // random
		rule("c", 1, 9, "rwm"),    // urandom
		rule("c", 5, 0, "rwm"),    // tty
		rule("c", 5, 1, "rwm"),    // console
		rule("c", 5, 2, "rwm"),    // ptmx
		rule("c", 136, -1, "rwm"), // pts
	}
}

func maskedPaths() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
		"/sys/firmware", "/sys/devices/virtual/powercap",
	}
}

func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}
