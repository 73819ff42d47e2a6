package sandbox

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// oomCount tells whether the host's kernel has killed for want of memory in a
// process's cgroup, or on the whole host, since the count was taken.
type oomCount struct {
	file   string
	before int
}

// countOOM takes the count of the process's memory cgroup, or of the host
// where that cannot be read.
func countOOM(pid int) oomCount {
	for _, file := range append(oomFiles(pid), "/proc/vmstat") {
		if n, ok := readOOM(file); ok {
			return oomCount{file, n}
		}
	}
	return oomCount{}
}

func (c oomCount) happened() bool {
	n, ok := readOOM(c.file)
	return ok && n > c.before
}

// oomFiles are where the kernel counts for the cgroups of pid: memory.events
// of cgroup2, memory.oom_control of the older controller. The root has none.
func oomFiles(pid int) []string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return nil
	}
	var files []string
	for line := range strings.Lines(string(data)) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		switch {
		case path == "/":
		case id == "0":
			files = append(files, filepath.Join("/sys/fs/cgroup", path, "memory.events"),
				filepath.Join("/sys/fs/cgroup/unified", path, "memory.events"))
		case strings.Contains(","+controllers+",", ",memory,"):
			files = append(files, filepath.Join("/sys/fs/cgroup/memory", path, "memory.oom_control"))
		}
	}
	return files
}

// readOOM finds the line "oom_kill N".
func readOOM(file string) (int, bool) {
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
