// Package host measures the host for the node's status. Optional values that cannot be read are empty.
package host

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Facts describe a host.
type Facts struct {
	CPUs        int
	MemoryBytes uint64
	// Kernel, OSImage, MachineID, SystemUUID and BootID are fields of a Node's nodeInfo.
	Kernel, OSImage, MachineID, SystemUUID, BootID string
	Arch                                           string
}

// Measure reads the host's facts.
func Measure() (Facts, error) {
	f := Facts{CPUs: runtime.NumCPU(), Arch: runtime.GOARCH}
	memory, err := Memory()
	if err != nil {
		return f, err
	}
	f.MemoryBytes = memory.Total
	var uname unix.Utsname
	if err := unix.Uname(&uname); err != nil {
		return f, fmt.Errorf("read the kernel's version: %w", err)
	}
	f.Kernel = unix.ByteSliceToString(uname.Release[:])
	f.OSImage = osImage()
	f.MachineID = line("/etc/machine-id")
	f.BootID = line("/proc/sys/kernel/random/boot_id")
	if f.SystemUUID = line("/sys/class/dmi/id/product_uuid"); f.SystemUUID == "" {
		f.SystemUUID = f.MachineID
	}
	return f, nil
}

// Usage is a capacity and its free part: bytes of memory, or a number of processes.
type Usage struct{ Total, Available uint64 }

// Memory returns the host's memory in bytes.
func Memory() (u Usage, err error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return u, fmt.Errorf("read the host's memory: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			continue
		}
		kib, _ := strconv.ParseUint(words[1], 10, 64)
		switch words[0] {
		case "MemTotal:":
			u.Total = kib << 10
		case "MemAvailable:":
			u.Available = kib << 10
		}
	}
	if u.Total == 0 {
		return u, fmt.Errorf("read the host's memory: no MemTotal in /proc/meminfo")
	}
	return u, nil
}

// PIDs returns how many processes and threads there can be, and how many more can start.
func PIDs() (u Usage, err error) {
	for _, path := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		n, err := strconv.ParseUint(line(path), 10, 64)
		if err != nil {
			return u, fmt.Errorf("read the maximum number of processes: %s: %w", path, err)
		}
		if u.Total == 0 || n < u.Total {
			u.Total = n
		}
	}
	words := strings.Fields(line("/proc/loadavg")) // 0.5 0.4 0.3 RUNNING/ALL LAST
	if len(words) < 4 {
		return u, fmt.Errorf("read the number of processes: unexpected format of /proc/loadavg")
	}
	_, all, _ := strings.Cut(words[3], "/")
	n, err := strconv.ParseUint(all, 10, 64)
	if err != nil {
		return u, fmt.Errorf("read the number of processes: %w", err)
	}
	u.Available = u.Total - min(n, u.Total)
	return u, nil
}

// Disk is the space of a file system, in bytes and inodes. Some free space may be reserved for root and thus not
// available.
type Disk struct{ Total, Available, Free, Inodes, FreeInodes uint64 }

// DiskOf measures the file system of a directory.
func DiskOf(dir string) (Disk, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Disk{}, fmt.Errorf("read the free space of %s: %w", dir, err)
	}
	size := uint64(st.Bsize)
	return Disk{Total: st.Blocks * size, Available: st.Bavail * size, Free: st.Bfree * size, Inodes: st.Files, FreeInodes: st.Ffree}, nil
}

func line(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func osImage() string {
	data, _ := os.ReadFile("/etc/os-release")
	for text := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(text), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"'`)
		}
	}
	return "Linux"
}

// Address returns the address by which others reach the host: the source address of the default route, or the first
// address that is not loopback.
func Address() (string, error) {
	// A datagram socket looks up the route without sending anything.
	if c, err := net.Dial("udp", "192.0.2.1:9"); err == nil {
		defer c.Close()
		if a, err := netip.ParseAddrPort(c.LocalAddr().String()); err == nil && !a.Addr().IsLoopback() {
			return a.Addr().String(), nil
		}
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("read the host's addresses: %w", err)
	}
	for _, one := range all {
		if p, err := netip.ParsePrefix(one.String()); err == nil && p.Addr().IsGlobalUnicast() {
			return p.Addr().String(), nil
		}
	}
	return "", fmt.Errorf("the host has no address that others can reach (set --node-ip)")
}
