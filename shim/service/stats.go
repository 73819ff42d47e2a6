package service

import (
	"context"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/card"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/sandbox"
)

func containerStats(id string, st agentv1.Stats) *shimv1.ContainerStats {
	return &shimv1.ContainerStats{
		Id: id, At: timestamppb.New(st.At), CpuUsec: st.CPUUsec,
		MemoryBytes: st.MemoryBytes, WorkingSetBytes: st.WorkingSet, RssBytes: st.RSS,
		PageFaults: st.PageFaults, MajorPageFaults: st.MajPageFaults, Pids: st.Pids,
		RootfsBytes: st.RootfsBytes, RootfsInodes: st.RootfsInodes,
	}
}

// stats reads the statistics of the guest and of every running container. It skips a container that ends meanwhile.
func (s *Services) stats(ctx context.Context) (*shimv1.StatsResponse, error) {
	memory, err := s.o.Sandbox.Memory(ctx)
	if err != nil {
		return nil, err
	}
	res := &shimv1.StatsResponse{GuestMemoryTotal: memory.Total, GuestMemoryAvailable: memory.Available}
	usage, err := s.o.Sandbox.Usage(ctx)
	if err != nil {
		return nil, err
	}
	res.Disk = &shimv1.DiskStats{ReadBytes: usage.Disk.ReadBytes, WriteBytes: usage.Disk.WriteBytes}
	if n := usage.Network; n != nil {
		res.Network = networkStats(n)
	}
	for _, n := range usage.Cards[:min(len(usage.Cards), card.Most)] {
		res.Cards = append(res.Cards, networkStats(&n))
	}
	for _, v := range usage.Volumes[:min(len(usage.Volumes), agentv1.MaxVolumes)] {
		res.Volumes = append(res.Volumes, &shimv1.VolumeStats{
			Name: printable(v.Name, 64), UsedBytes: v.Used, Inodes: v.Inodes, CapacityBytes: v.Capacity, AvailableBytes: v.Available,
		})
	}
	for _, p := range s.o.Sandbox.Status().Processes {
		if p.Exec != "" || p.State != sandbox.Running && p.State != sandbox.Paused {
			continue
		}
		if st, err := s.o.Sandbox.ContainerStats(ctx, p.Container); err == nil {
			res.Containers = append(res.Containers, containerStats(p.Container, st))
		}
	}
	return res, nil
}

func networkStats(n *agentv1.NetUsage) *shimv1.NetworkStats {
	return &shimv1.NetworkStats{
		Name: printable(n.Name, 32), RxBytes: n.RxBytes, RxErrors: n.RxErrors, TxBytes: n.TxBytes, TxErrors: n.TxErrors,
	}
}

// printable returns a name from the guest, bounded and escaped for terminals.
func printable(name string, most int) string {
	text := strconv.QuoteToASCII(name[:min(len(name), most)])
	return text[1 : len(text)-1]
}
