package endpoint

import runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

// sum returns the usage of each pod: the sum of its containers' CPU time and working sets, and their latest timestamps.
// Pods are in the order of their first container. It leaves out containers without a pod UID label, which do not belong
// to Kubernetes. A missing value counts as 0.
func sum(containers []*runtimeapi.ContainerStats) (list []*runtimeapi.PodSandboxStats) {
	pods := map[string]*runtimeapi.PodSandboxStats{}
	for _, c := range containers {
		labels := c.GetAttributes().GetLabels()
		uid := labels[uidLabel]
		if uid == "" {
			continue
		}
		p := pods[uid]
		if p == nil {
			p = &runtimeapi.PodSandboxStats{
				Attributes: &runtimeapi.PodSandboxAttributes{Metadata: &runtimeapi.PodSandboxMetadata{
					Uid: uid, Name: labels["io.kubernetes.pod.name"], Namespace: labels["io.kubernetes.pod.namespace"],
				}},
				Linux: &runtimeapi.LinuxPodSandboxStats{Cpu: &runtimeapi.CpuUsage{}, Memory: &runtimeapi.MemoryUsage{}},
			}
			pods[uid] = p
			list = append(list, p)
		}
		of := p.GetLinux()
		of.Containers = append(of.Containers, c)
		of.Cpu.Timestamp = max(of.Cpu.Timestamp, c.GetCpu().GetTimestamp())
		of.Cpu.UsageCoreNanoSeconds = add(of.Cpu.UsageCoreNanoSeconds, c.GetCpu().GetUsageCoreNanoSeconds())
		of.Memory.Timestamp = max(of.Memory.Timestamp, c.GetMemory().GetTimestamp())
		of.Memory.WorkingSetBytes = add(of.Memory.WorkingSetBytes, c.GetMemory().GetWorkingSetBytes())
	}
	return list
}

// add returns the sum of two values. A nil value counts as 0.
func add(to, more *runtimeapi.UInt64Value) *runtimeapi.UInt64Value {
	return &runtimeapi.UInt64Value{Value: to.GetValue() + more.GetValue()}
}
