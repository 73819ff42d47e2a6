package cri

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/cri/spec"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// RunPodSandbox creates and starts a pod and returns its id. Clients do not see the pod before it is ready, and a
// failure leaves no trace of it. If a pod with that name and attempt is being started, the call joins the start. If it
// is ready, the call returns its id. The end of ctx ends the wait, not the start.
func (s *Service) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	return s.runPodSandbox(ctx, config, handler, runtimev1.PodOptions{}, false)
}

// RunPodSandboxWith implements runtimev1.Runtime.
func (s *Service) RunPodSandboxWith(
	ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string, o runtimev1.PodOptions,
) (string, error) {
	return s.runPodSandbox(ctx, config, handler, o, true)
}

func (s *Service) runPodSandbox(
	ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string, o runtimev1.PodOptions, giveUp bool,
) (string, error) {
	if err := checkPod(config); err != nil {
		return "", err
	}
	o, err := s.handlers.options(handler, o)
	if err != nil {
		return "", failure.Wrap(err, "pod %s", config.GetMetadata().GetName())
	}
	req, err := podRequest(config, handler, o)
	if err != nil {
		return "", failure.Wrap(err, "pod %s", config.GetMetadata().GetName())
	}
	req.GiveUp = giveUp
	return s.engine.StartPod(ctx, req)
}

// StopPodSandbox stops a pod's VM with its containers, its shim and its network. It succeeds for a pod that is stopped
// or does not exist. The end of ctx ends the wait, not the stop.
func (s *Service) StopPodSandbox(ctx context.Context, id string) error {
	p, err := s.find(id)
	if failure.NotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.engine.StopPod(ctx, p.ID)
}

// RemovePodSandbox removes a pod with its files, and stops it first. It succeeds if the pod does not exist.
func (s *Service) RemovePodSandbox(ctx context.Context, id string) error {
	p, err := s.find(id)
	if failure.NotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.engine.RemovePod(ctx, p.ID); err != nil {
		return err
	}
	s.records.pods.forget(p.ID)
	for _, c := range p.Containers {
		s.records.containers.forget(c.ID)
	}
	return nil
}

// UpdatePodSandboxResources resizes a running pod: see engine.Engine.ResizePod.
func (s *Service) UpdatePodSandboxResources(
	ctx context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest,
) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	p, err := s.find(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	var overhead *store.Overhead
	if r := req.GetOverhead(); r != nil {
		o := overheadOf(r)
		overhead = &o
	}
	size := sizeOf(req.GetResources(), s.records.podOf(&p).options)
	if err := s.engine.ResizePod(ctx, p.ID, size, overhead); err != nil {
		return nil, err
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

// podKey returns the pod's unique name.
func podKey(m *runtimeapi.PodSandboxMetadata) string {
	return fmt.Sprintf("%s/%s/%s/%d", m.GetNamespace(), m.GetName(), m.GetUid(), m.GetAttempt())
}

// checkPod rejects configurations that no pod can have. Its errors name the field and the remedy.
func checkPod(config *runtimeapi.PodSandboxConfig) error {
	meta, options := config.GetMetadata(), config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	switch {
	case meta.GetName() == "":
		return failure.Invalid("the pod has no name (metadata.name)")
	case meta.GetNamespace() == "":
		return failure.Invalid("pod %s: no namespace (metadata.namespace)", meta.GetName())
	case strings.Contains(meta.GetNamespace(), ":"):
		return failure.Invalid("pod %s: namespace %q has a colon (metadata.namespace)", meta.GetName(), meta.GetNamespace())
	case options.GetPid() == runtimeapi.NamespaceMode_NODE:
		return failure.Unsupported("pod %s: a pod in a VM cannot see the host's processes (hostPID)", meta.GetName())
	case options.GetIpc() == runtimeapi.NamespaceMode_NODE:
		return failure.Unsupported("pod %s: a pod in a VM cannot use the host's IPC (hostIPC)", meta.GetName())
	case mapped(options):
		return failure.Unsupported("pod %s: user namespaces are not available in a VM (hostUsers: false)", meta.GetName())
	case config.GetLogDirectory() != "" && !filepath.IsAbs(config.GetLogDirectory()):
		return failure.Invalid("pod %s: log directory %q is not absolute", meta.GetName(), config.GetLogDirectory())
	}
	return nil
}

// mapped reports whether a pod must have its own user namespace. A client that sets no option also sends the mode POD,
// the zero value, so a mapping is required.
func mapped(o *runtimeapi.NamespaceOption) bool {
	u := o.GetUsernsOptions()
	return u.GetMode() == runtimeapi.NamespaceMode_POD && len(u.GetUids())+len(u.GetGids()) > 0
}

// podRequest returns the request to the engine.
func podRequest(
	config *runtimeapi.PodSandboxConfig, handler string, o runtimev1.PodOptions,
) (r engine.PodRequest, err error) {
	config = proto.CloneOf(config)
	meta := config.GetMetadata()
	r = engine.PodRequest{
		Key: podKey(meta),
		Identity: engine.Identity{
			Name: meta.GetName(), Namespace: meta.GetNamespace(), UID: meta.GetUid(), Attempt: meta.GetAttempt(),
			Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
		},
		Size:     sizeOf(config.GetLinux().GetResources(), o),
		Overhead: overheadOf(config.GetLinux().GetOverhead()), CgroupParent: config.GetLinux().GetCgroupParent(),
		Hostname: config.GetHostname(), LogDirectory: config.GetLogDirectory(),
		Sysctls: config.GetLinux().GetSysctls(),
		Network: network.Kind(o.Network), Accel: hypervisor.Accel(o.Accel), Cold: o.Cold, NoFork: o.NoFork, ScratchBytes: o.ScratchBytes,
	}
	if err := oci.CheckSysctls(r.Sysctls); err != nil {
		return r, err
	}
	if err := spec.CheckLabels(config.GetLinux().GetSecurityContext()); err != nil {
		return r, err
	}
	if err := setNetwork(&r, config); err != nil {
		return r, err
	}
	if config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE {
		r.Network, r.Ports = network.KindHost, nil // its ports are already the host's
	}
	r.Record, err = encode(config, stored{Handler: handler, Options: o})
	return r, err
}

// sizeOf returns the size from the resources that the kubelet, or package pod, has summed up. The memory limit does not
// include huge pages.
func sizeOf(r *runtimeapi.LinuxContainerResources, o runtimev1.PodOptions) engine.Size {
	d := sizing.Demand{
		Quota: r.GetCpuQuota(), Period: uint64(max(r.GetCpuPeriod(), 0)), Shares: uint64(max(r.GetCpuShares(), 0)),
		MemoryLimit: r.GetMemoryLimitInBytes(), Unstated: o.Unstated,
	}
	for _, pages := range r.GetHugepageLimits() {
		d.HugePages += int64(min(pages.GetLimit(), math.MaxInt64>>8))
	}
	var l agentv1.PodLimits
	if o.WholeMemory {
		l.MemoryBytes = r.GetMemoryLimitInBytes()
	}
	if o.WholeCPU {
		l.CPUQuota, l.CPUPeriod = r.GetCpuQuota(), r.GetCpuPeriod()
	}
	return engine.Size{Demand: d, Limits: l}
}

// overheadOf returns the overhead of the pod's configuration (the API's spec.overhead).
func overheadOf(r *runtimeapi.LinuxContainerResources) store.Overhead {
	o := store.Overhead{Memory: r.GetMemoryLimitInBytes()}
	if r.GetCpuQuota() > 0 && r.GetCpuPeriod() > 0 {
		o.CPU = float64(r.GetCpuQuota()) / float64(r.GetCpuPeriod())
	}
	return o
}
