// Package measure reads the usage of the guest's resources from the kernel.
package measure

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/cgroup"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/guesttree"
)

// sector is the unit of /proc/diskstats in bytes, for all disks.
const sector = 512

// Network returns the counters of the pod's first interface except loopback, and of its further cards. The containers
// share the agent's network namespace.
func Network(cards []agentv1.Network) (first *agentv1.NetUsage, further []agentv1.NetUsage, err error) {
	data, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return nil, nil, fmt.Errorf("usage of the network: %w", err)
	}
	first, further = parseNetDev(string(data), cards)
	return first, further, nil
}

// Disks returns the sum of the counters of the VM's disks.
func Disks() (agentv1.DiskUsage, error) {
	data, err := os.ReadFile("/proc/diskstats")
	if err != nil {
		return agentv1.DiskUsage{}, fmt.Errorf("usage of the disks: %w", err)
	}
	return parseDiskstats(string(data)), nil
}

// parseNetDev returns the counters of the first interface except loopback, and of the further cards.
func parseNetDev(data string, cards []agentv1.Network) (first *agentv1.NetUsage, further []agentv1.NetUsage) {
	for line := range strings.Lines(data) {
		name, counters, ok := strings.Cut(strings.TrimSpace(line), ":")
		f := strings.Fields(counters)
		if !ok || name == "lo" || len(f) < 11 {
			continue
		}
		n := agentv1.NetUsage{Name: name}
		for at, to := range map[int]*uint64{0: &n.RxBytes, 2: &n.RxErrors, 8: &n.TxBytes, 10: &n.TxErrors} {
			*to, _ = strconv.ParseUint(f[at], 10, 64) // a malformed number is 0
		}
		if slices.ContainsFunc(cards, func(c agentv1.Network) bool { return c.Name == name }) {
			further = append(further, n)
		} else if first == nil {
			first = &n
		}
	}
	return first, further
}

// parseDiskstats adds up the virtual disks, which have no partitions.
func parseDiskstats(data string) agentv1.DiskUsage {
	var u agentv1.DiskUsage
	for line := range strings.Lines(data) {
		f := strings.Fields(line)
		if len(f) < 10 || !strings.HasPrefix(f[2], "vd") {
			continue
		}
		read, err1 := strconv.ParseUint(f[5], 10, 64)
		written, err2 := strconv.ParseUint(f[9], 10, 64)
		if err1 == nil && err2 == nil {
			u.ReadBytes += read * sector
			u.WriteBytes += written * sector
		}
	}
	return u
}

// Memory returns the guest's memory.
func Memory() (agentv1.Memory, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return agentv1.Memory{}, err
	}
	return parseMeminfo(string(data)), nil
}

func parseMeminfo(data string) agentv1.Memory {
	var m agentv1.Memory
	for line := range strings.Lines(data) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			continue
		}
		switch f[0] {
		case "MemTotal:":
			m.Total = n << 10
		case "MemAvailable:":
			m.Available = n << 10
		}
	}
	return m
}

// MemoryLimit returns the bytes that the processes of a cgroup can use: its limit, and at most the guest's memory. It
// returns 0 if it cannot find out.
func MemoryLimit(g cgroup.Dir) uint64 {
	memory, err := Memory()
	if err != nil {
		return 0
	}
	total := uint64(memory.Total)
	limit, err := g.Value("memory.max")
	if err != nil { // the value is "max"
		return total
	}
	return min(limit, total)
}

// Bounds of the walk that measures a container's writes.
const (
	usageWait    = 5 * time.Second
	usageEntries = 1 << 20
)

// Tree adds up the sizes below a directory, like du. If the walk exceeds its bounds, the result is a lower limit.
func Tree(ctx context.Context, dir string) (bytes, inodes uint64) {
	add := func(_ int, _ string, st *unix.Stat_t) error {
		bytes += uint64(st.Blocks) * 512
		inodes++
		return nil
	}
	var top unix.Stat_t
	if unix.Lstat(dir, &top) != nil {
		return 0, 0
	}
	_ = add(0, "", &top)
	ctx, cancel := context.WithTimeout(ctx, usageWait)
	defer cancel()
	_ = guesttree.Walk(ctx, dir, guesttree.Bounds{Levels: guesttree.MaxLevels, Entries: usageEntries}, add) // errors: a lower limit
	return bytes, inodes
}
