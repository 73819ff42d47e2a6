package agent

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// sector is the unit of /proc/diskstats in bytes, for all disks.
const sector = 512

// usage reads the counters of the pod's interfaces, the VM's disks and the pod's emptyDirs. The containers share the
// agent's network namespace.
func (a *Agent) usage(context.Context, none) (agentv1.Usage, error) {
	var u agentv1.Usage
	net, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return u, fmt.Errorf("usage of the network: %w", err)
	}
	disks, err := os.ReadFile("/proc/diskstats")
	if err != nil {
		return u, fmt.Errorf("usage of the disks: %w", err)
	}
	a.mu.Lock()
	cards := a.pod.Cards
	a.mu.Unlock()
	u.Network, u.Cards = parseNetDev(string(net), cards)
	u.Disk = parseDiskstats(string(disks))
	u.Volumes = a.space.Usage()
	return u, nil
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
