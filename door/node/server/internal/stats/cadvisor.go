package stats

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/node/host"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// subject is one entry on cAdvisor's page: a whole pod, with empty container and image labels, or one of its
// containers.
type subject struct {
	labels     string
	started    time.Time
	cpu        *runtimeapi.CpuUsage
	memory     *runtimeapi.MemoryUsage
	disk       *runtimeapi.FilesystemUsage
	interfaces []*runtimeapi.NetworkInterfaceUsage
}

// family is one metric. of yields its values for a subject, each with additional labels or "".
type family struct {
	name, kind, help string
	of               func(*subject, func(labels string, value float64))
}

// families are the commonly used metrics of cAdvisor that exist for a VM's containers.
var families = []family{
	{"container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in seconds.", func(
		s *subject, tell func(string, float64),
	) {
		if s.cpu != nil {
			tell(`cpu="total"`, float64(s.cpu.GetUsageCoreNanoSeconds().GetValue())/1e9)
		}
	}},
	memory("container_memory_usage_bytes", "Current memory usage in bytes, including all memory regardless of when it was accessed",
		func(m *runtimeapi.MemoryUsage) uint64 { return m.GetUsageBytes().GetValue() }),
	memory("container_memory_working_set_bytes", "Current working set in bytes.",
		func(m *runtimeapi.MemoryUsage) uint64 { return m.GetWorkingSetBytes().GetValue() }),
	memory("container_memory_rss", "Size of RSS in bytes.", func(m *runtimeapi.MemoryUsage) uint64 { return m.GetRssBytes().GetValue() }),
	disk("container_fs_usage_bytes", "Number of bytes that are consumed by the container on this filesystem.",
		func(d *runtimeapi.FilesystemUsage) uint64 { return d.GetUsedBytes().GetValue() }),
	disk("container_fs_inodes_total", "Number of Inodes", func(d *runtimeapi.FilesystemUsage) uint64 { return d.GetInodesUsed().GetValue() }),
	traffic("container_network_receive_bytes_total", "Cumulative count of bytes received",
		func(i *runtimeapi.NetworkInterfaceUsage) uint64 { return i.GetRxBytes().GetValue() }),
	traffic("container_network_receive_errors_total", "Cumulative count of errors encountered while receiving",
		func(i *runtimeapi.NetworkInterfaceUsage) uint64 { return i.GetRxErrors().GetValue() }),
	traffic("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted",
		func(i *runtimeapi.NetworkInterfaceUsage) uint64 { return i.GetTxBytes().GetValue() }),
	traffic("container_network_transmit_errors_total", "Cumulative count of errors encountered while transmitting",
		func(i *runtimeapi.NetworkInterfaceUsage) uint64 { return i.GetTxErrors().GetValue() }),
	{"container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds.", func(
		s *subject, tell func(string, float64),
	) {
		if !s.started.IsZero() {
			tell("", float64(s.started.Unix()))
		}
	}},
}

func memory(name, help string, value func(*runtimeapi.MemoryUsage) uint64) family {
	return family{name, "gauge", help, func(s *subject, tell func(string, float64)) {
		if s.memory != nil {
			tell("", float64(value(s.memory)))
		}
	}}
}

func disk(name, help string, value func(*runtimeapi.FilesystemUsage) uint64) family {
	return family{name, "gauge", help, func(s *subject, tell func(string, float64)) {
		if s.disk != nil {
			tell("", float64(value(s.disk)))
		}
	}}
}

func traffic(name, help string, value func(*runtimeapi.NetworkInterfaceUsage) uint64) family {
	return family{name, "counter", help, func(s *subject, tell func(string, float64)) {
		for _, i := range s.interfaces {
			tell(fmt.Sprintf("interface=%q", i.GetName()), float64(value(i)))
		}
	}}
}

// cadvisor writes the page of a kubelet's /metrics/cadvisor.
func (n *Node) cadvisor(ctx context.Context, w io.Writer) error {
	list, err := n.pods(ctx)
	if err != nil {
		return err
	}
	room, err := host.Memory()
	if err != nil {
		return err
	}
	statuses := n.statuses()
	var all []subject
	for i := range list {
		p := list[i].Stats
		all = append(all, subjects(p, statuses[types.UID(p.GetAttributes().GetMetadata().GetUid())])...)
	}
	p := page{w}
	for _, f := range families {
		p.plain(f.name, f.kind, f.help)
		for i := range all {
			s := &all[i]
			f.of(s, func(labels string, value float64) {
				if labels != "" {
					labels += ","
				}
				p.bare(f.name, labels+s.labels, value)
			})
		}
	}
	p.plain("machine_cpu_cores", "gauge", "Number of logical CPU cores.")
	p.bare("machine_cpu_cores", "", float64(runtime.NumCPU()))
	p.plain("machine_memory_bytes", "gauge", "Amount of memory installed on the machine.")
	p.bare("machine_memory_bytes", "", float64(room.Total))
	return nil
}

// subjects returns a pod and its containers.
func subjects(p *runtimeapi.PodSandboxStats, status corev1.PodStatus) []subject {
	meta, linux := p.GetAttributes().GetMetadata(), p.GetLinux()
	of := func(container, id, image, name string) string {
		return fmt.Sprintf("container=%q,id=%q,image=%q,name=%q,namespace=%q,pod=%q",
			container, id, image, name, meta.GetNamespace(), meta.GetName())
	}
	own := "/" + meta.GetUid()
	pod := subject{
		labels: of("", own, "", ""), cpu: linux.GetCpu(), memory: linux.GetMemory(),
	}
	if network := linux.GetNetwork(); network.GetDefaultInterface() != nil {
		pod.interfaces = append([]*runtimeapi.NetworkInterfaceUsage{network.GetDefaultInterface()}, network.GetInterfaces()...)
	}
	if status.StartTime != nil {
		pod.started = status.StartTime.Time
	}
	all := []subject{pod}
	for _, c := range linux.GetContainers() {
		id, name := c.GetAttributes().GetId(), c.GetAttributes().GetMetadata().GetName()
		image, started := found(status, id)
		all = append(all, subject{
			labels: of(name, own+"/"+id, image, id), cpu: c.GetCpu(), memory: c.GetMemory(), disk: c.GetWritableLayer(), started: started,
		})
	}
	return all
}

// found returns the image and start time of the container with an id.
func found(status corev1.PodStatus, id string) (image string, started time.Time) {
	for c := range podstatus.Every(&status) {
		if !strings.HasSuffix(c.ContainerID, "://"+id) {
			continue
		}
		if running := c.State.Running; running != nil {
			started = running.StartedAt.Time
		}
		return c.Image, started
	}
	return "", started
}
