package cri

import (
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/api/annotations"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// RuntimeHandler is the handler that pods may name; none means the same.
const RuntimeHandler = "bulkhead"

// plan is all that can be decided about a pod before anything is made.
type plan struct {
	key      string
	config   *runtimeapi.PodSandboxConfig // our own copy
	handler  string
	sysctls  map[string]string
	provider network.Provider
	netNote  string
	machine  hypervisor.Machine
	note     string // about the accelerator
	memory   int    // MiB
	quota    int64  // of the CPUs, in microseconds of each period; 0 is all of them
	period   int64
	cold     bool
	scratch  int64 // bytes of the scratch disk that the pod may write; 0 is all
	overhead overhead
	network  network.Request // without the id
}

// podKey is the name that one pod at a time has.
func podKey(m *runtimeapi.PodSandboxMetadata) string {
	return fmt.Sprintf("%s/%s/%s/%d", m.GetNamespace(), m.GetName(), m.GetUid(), m.GetAttempt())
}

// checkPod refuses what no pod of this engine can be. Its errors name the
// field and what to do.
func (s *Service) checkPod(config *runtimeapi.PodSandboxConfig, handler string) error {
	meta, options := config.GetMetadata(), config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	switch {
	case meta.GetName() == "":
		return invalid("the pod has no name (metadata.name)")
	case meta.GetNamespace() == "":
		return invalid("pod %s: no namespace (metadata.namespace)", meta.GetName())
	case handler != "" && handler != RuntimeHandler:
		return invalid("pod %s: unknown runtime handler %q, want %q or none", meta.GetName(), handler, RuntimeHandler)
	case options.GetNetwork() == runtimeapi.NamespaceMode_NODE:
		return invalid("pod %s: the host's network cannot be used by a pod in a virtual machine (hostNetwork)", meta.GetName())
	case options.GetPid() == runtimeapi.NamespaceMode_NODE:
		return invalid("pod %s: the host's processes cannot be seen by a pod in a virtual machine (hostPID)", meta.GetName())
	case options.GetIpc() == runtimeapi.NamespaceMode_NODE:
		return invalid("pod %s: the host's IPC cannot be used by a pod in a virtual machine (hostIPC)", meta.GetName())
	case config.GetLogDirectory() != "" && !filepath.IsAbs(config.GetLogDirectory()):
		return invalid("pod %s: log directory %q is not absolute", meta.GetName(), config.GetLogDirectory())
	}
	if err := s.refuseInternal(config.GetAnnotations()); err != nil {
		return fail(err, "pod %s", meta.GetName())
	}
	if dir := config.GetLogDirectory(); dir != "" {
		return fail(s.mayName(dir), "pod %s: log directory", meta.GetName())
	}
	return nil
}

// plan decides about a pod. It changes nothing.
func (s *Service) plan(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (*plan, error) {
	p := &plan{key: podKey(config.GetMetadata()), config: config, handler: handler}
	name := config.GetMetadata().GetName()
	var err error
	if p.sysctls, err = s.sysctls(config); err != nil {
		return nil, fail(err, "pod %s", name)
	}
	switch value := config.GetAnnotations()[annotations.Template]; value {
	case "", "on":
	case "off":
		p.cold = true
	default:
		return nil, invalid("pod %s: annotation %s=%q is neither on nor off", name, annotations.Template, value)
	}
	if p.network, err = networkRequest(config); err != nil {
		return nil, err
	}
	size, err := sizing.SizeOf(demands(config), s.host, s.sizing())
	if err != nil {
		return nil, fail(err, "pod %s", name)
	}
	p.memory, p.quota, p.period = size.MemoryMiB, quota(size), size.Period
	p.overhead = overheadOf(config.GetLinux().GetOverhead())
	if p.scratch, err = scratchBytes(config); err != nil {
		return nil, fail(err, "pod %s", name)
	}
	kind := network.Kind(config.GetAnnotations()[annotations.Network])
	switch kind {
	case "":
		kind = s.o.DefaultNetwork
	case network.KindNone, network.KindUser, network.KindHostLoopback:
	default:
		return nil, invalid("pod %s: unknown network %q (user, none)", name, kind)
	}
	accel := hypervisor.Accel(config.GetAnnotations()[annotations.Accel])
	if accel != "" && accel != hypervisor.Auto && accel != hypervisor.KVM && accel != hypervisor.TCG {
		return nil, invalid("pod %s: unknown accelerator %q (auto, kvm, tcg)", name, accel)
	}
	if p.provider, err = s.provider(kind); err != nil {
		return nil, fail(err, "pod %s", name)
	}
	p.machine, p.note, err = s.machineFor(ctx, size.VCPUs, p.memory, accel, p.provider)
	if err != nil {
		return nil, fail(err, "pod %s", name)
	}
	if p.memory > p.machine.MaxMem {
		return nil, fail(&sizing.TooLargeError{What: "MiB of memory", Want: int64(p.memory), Have: int64(p.machine.MaxMem)}, "pod %s", name)
	}
	_, p.netNote = p.provider.Kind()
	return p, nil
}

// kind is the pod's, for the pool.
func (p *plan) kind() kind { return kind{p.machine, p.memory} }

func (s *Service) sizing() sizing.Defaults { return sizing.Default }

// demands are what the kubelet, or package pod, has summed up over the
// containers. Huge pages are beside the memory that it limits, and a container
// without a limit is one more that asks for nothing.
func demands(config *runtimeapi.PodSandboxConfig) []sizing.Demand {
	r := config.GetLinux().GetResources()
	d := sizing.Demand{
		Quota: r.GetCpuQuota(), Period: uint64(max(r.GetCpuPeriod(), 0)), Shares: uint64(max(r.GetCpuShares(), 0)),
		MemoryLimit: r.GetMemoryLimitInBytes(),
	}
	for _, pages := range r.GetHugepageLimits() {
		d.HugePages += int64(min(pages.GetLimit(), math.MaxInt64>>8))
	}
	d.Unstated = config.GetAnnotations()[annotations.Unstated] != ""
	return []sizing.Demand{d}
}

// maxScratch is the size of a machine's disk slot.
const maxScratch = 64 << 30

// scratchBytes is what the pod may write to its disk.
func scratchBytes(config *runtimeapi.PodSandboxConfig) (int64, error) {
	text := config.GetAnnotations()[annotations.Scratch]
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return 0, invalid("annotation %s=%q is no number of bytes", annotations.Scratch, text)
	}
	if n > maxScratch {
		return 0, &sizing.TooLargeError{What: "bytes of ephemeral storage", Want: n, Have: maxScratch}
	}
	return n, nil
}

// scratchSize is that of the pod's disk.
func (p *plan) scratchSize() int64 { return max(p.scratch, defaultScratch) }

// sysctls are the safe ones, and the unsafe ones that the engine allows.
func (s *Service) sysctls(config *runtimeapi.PodSandboxConfig) (map[string]string, error) {
	all := maps.Clone(config.GetLinux().GetSysctls())
	safe := maps.Clone(all)
	maps.DeleteFunc(safe, func(key, value string) bool {
		return slices.Contains(s.o.UnsafeSysctls, key) && !strings.ContainsAny(key+value, "\n\x00")
	})
	if err := oci.CheckSysctls(safe); err != nil {
		return nil, err
	}
	return all, nil
}

// hostOf is what this host has for its machines.
func hostOf() sizing.Host {
	h := sizing.Host{CPUs: runtime.NumCPU()}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		h.MemoryMiB = int(info.Totalram * uint64(info.Unit) >> 20)
	}
	return h
}
