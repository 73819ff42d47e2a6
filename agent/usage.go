package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
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
	u.Volumes = a.volumeUsage()
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

// volumeUsage returns the usage of the pod's emptyDirs, as counted by their file systems and the disk's quotas, without
// walking trees. It skips those that cannot be read.
func (a *Agent) volumeUsage() (all []agentv1.VolumeUsage) {
	for base, look := range map[string]func(at string, u *agentv1.VolumeUsage) bool{
		volumeDir: ownSystem, filepath.Join(scratchDir, volumesDir): a.onDisk,
	} {
		list, err := os.ReadDir(base)
		if err != nil {
			continue // no volumes
		}
		for _, entry := range list {
			u := agentv1.VolumeUsage{Name: entry.Name()}
			if len(all) < agentv1.MaxVolumes && entry.IsDir() && containerv1.ValidID(u.Name) && look(filepath.Join(base, u.Name), &u) {
				all = append(all, u)
			}
		}
	}
	return all
}

// ownSystem reads the usage of a volume with its own file system, in memory.
func ownSystem(at string, u *agentv1.VolumeUsage) bool {
	var st unix.Statfs_t
	if unix.Statfs(at, &st) != nil || st.Type != unix.TMPFS_MAGIC && st.Type != unix.HUGETLBFS_MAGIC {
		return false
	}
	size := uint64(st.Bsize)
	u.Capacity, u.Available, u.Used, u.Inodes = st.Blocks*size, st.Bavail*size, (st.Blocks-st.Bfree)*size, st.Files-st.Ffree
	return true
}

// onDisk reads the usage of a volume on the scratch disk. The file system reports a volume's limit as its size.
func (a *Agent) onDisk(at string, u *agentv1.VolumeUsage) (ok bool) {
	var st unix.Statfs_t
	if u.Used, u.Inodes, ok = a.counted(at); !ok || unix.Statfs(at, &st) != nil {
		return false
	}
	u.Capacity, u.Available = st.Blocks*uint64(st.Bsize), st.Bavail*uint64(st.Bsize)
	return true
}
