package nri

import (
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	service "github.com/bulkhead-project/bulkhead/cri"
)

// containerOf returns a new container in the plugins' form. Its mounts are the client's, with paths of the host: the
// specification's mounts have paths of the guest.
func containerOf(m service.Making, spec *specs.Spec) *api.Container {
	c := &api.Container{
		Id: m.ID, PodSandboxId: m.PodID, Name: m.Config.GetMetadata().GetName(), State: api.ContainerState_CONTAINER_CREATED,
		Labels: m.Config.GetLabels(), Annotations: api.DupStringMap(m.Config.GetAnnotations()),
		Args: api.DupStringSlice(spec.Process.Args), Env: api.DupStringSlice(spec.Process.Env), CreatedAt: time.Now().UnixNano(),
		Image: &api.Image{Name: m.Config.GetImage().GetImage()},
		Linux: &api.LinuxContainer{
			Resources: api.FromOCILinuxResources(spec.Linux.Resources, nil), OomScoreAdj: api.Int(spec.Process.OOMScoreAdj),
		},
	}
	c.Linux.Resources.Devices = nil
	for _, mount := range m.Config.GetMounts() {
		c.Mounts = append(c.Mounts, &api.Mount{Source: mount.GetHostPath(), Destination: mount.GetContainerPath(), Type: "bind"})
	}
	for _, limit := range spec.Process.Rlimits {
		c.Rlimits = append(c.Rlimits, &api.POSIXRlimit{Type: limit.Type, Hard: limit.Hard, Soft: limit.Soft})
	}
	for _, d := range m.Config.GetCDIDevices() {
		c.CDIDevices = append(c.CDIDevices, &api.CDIDevice{Name: d.GetName()})
	}
	return c
}

// state copies the state of a container.
func state(c *api.Container, st *runtimeapi.ContainerStatus) {
	c.CreatedAt, c.StartedAt, c.FinishedAt = st.GetCreatedAt(), st.GetStartedAt(), st.GetFinishedAt()
	c.ExitCode, c.StatusReason, c.StatusMessage = st.GetExitCode(), st.GetReason(), st.GetMessage()
	switch st.GetState() {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		c.State = api.ContainerState_CONTAINER_CREATED
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		c.State = api.ContainerState_CONTAINER_RUNNING
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		c.State = api.ContainerState_CONTAINER_STOPPED
	}
}

// ofCRI returns limits in the plugins' form.
func ofCRI(r *runtimeapi.LinuxContainerResources) *api.LinuxResources {
	out := &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: r.GetCpusetCpus(), Mems: r.GetCpusetMems()}, Memory: &api.LinuxMemory{}}
	if q := r.GetCpuQuota(); q != 0 {
		out.Cpu.Quota = api.Int64(q)
	}
	if period := r.GetCpuPeriod(); period > 0 {
		out.Cpu.Period = api.UInt64(uint64(period))
	}
	if shares := r.GetCpuShares(); shares > 0 {
		out.Cpu.Shares = api.UInt64(uint64(shares))
	}
	if limit := r.GetMemoryLimitInBytes(); limit > 0 {
		out.Memory.Limit = api.Int64(limit)
	}
	for _, h := range r.GetHugepageLimits() {
		out.HugepageLimits = append(out.HugepageLimits, &api.HugepageLimit{PageSize: h.GetPageSize(), Limit: h.GetLimit()})
	}
	out.Unified = api.DupStringMap(r.GetUnified())
	return out
}

// resources overwrites base with plugins' limits, for a running container.
func resources(r *api.LinuxResources, base *runtimeapi.LinuxContainerResources) (*runtimeapi.LinuxContainerResources, error) {
	if err := checkResources(r); err != nil {
		return nil, err
	}
	out := &runtimeapi.LinuxContainerResources{}
	if base != nil {
		out = proto.CloneOf(base)
	}
	cpu := r.GetCpu()
	if v := cpu.GetQuota().Get(); v != nil {
		out.CpuQuota = *v
	}
	if v := cpu.GetPeriod().Get(); v != nil {
		out.CpuPeriod = int64(*v)
	}
	if v := cpu.GetShares().Get(); v != nil {
		out.CpuShares = int64(*v)
	}
	if cpu.GetCpus() != "" {
		out.CpusetCpus = cpu.GetCpus()
	}
	if cpu.GetMems() != "" {
		out.CpusetMems = cpu.GetMems()
	}
	if v := r.GetMemory().GetLimit().Get(); v != nil {
		out.MemoryLimitInBytes = *v
	}
	for key, value := range r.GetUnified() {
		if out.Unified == nil {
			out.Unified = map[string]string{}
		}
		out.Unified[key] = value
	}
	return out, nil
}
