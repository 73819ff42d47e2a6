// Package hostoom reports whether the host's kernel has killed a process for want of memory.
package hostoom

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Count counts the kernel's kills for want of memory in a process's cgroup, or on the whole host.
type Count struct {
	File   string // the kernel's counter; empty for none
	Before int    // the count at the start
}

// Read reads the count of the process's memory cgroup, or of the host if that cannot be read.
func Read(pid int) Count {
	cgroups, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup") // a process that has ended has none
	for _, file := range append(files(string(cgroups)), "/proc/vmstat") {
		if n, ok := read(file); ok {
			return Count{file, n}
		}
	}
	return Count{}
}

// Happened reports whether the kernel has killed since Read.
func (c Count) Happened() bool {
	n, ok := read(c.File)
	return ok && n > c.Before
}

// files returns the kernel's counters for the cgroups of a process, by its /proc/PID/cgroup: memory.events of cgroup2,
// memory.oom_control of the older controller. The root has none.
func files(cgroups string) []string {
	var found []string
	for line := range strings.Lines(cgroups) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		switch {
		case path == "/":
		case id == "0":
			found = append(found, filepath.Join("/sys/fs/cgroup", path, "memory.events"),
				filepath.Join("/sys/fs/cgroup/unified", path, "memory.events"))
		case strings.Contains(","+controllers+",", ",memory,"):
			found = append(found, filepath.Join("/sys/fs/cgroup/memory", path, "memory.oom_control"))
		}
	}
	return found
}

// read finds the line "oom_kill N".
func read(file string) (int, bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(data) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		if name == "oom_kill" {
			n, err := strconv.Atoi(value)
			return n, err == nil
		}
	}
	return 0, false
}
