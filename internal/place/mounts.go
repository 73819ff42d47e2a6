package place

import (
	"bufio"
	"os"
	"slices"
	"strconv"
	"strings"
)

// kernels are the file systems of the kernel's own doings, by their names. A pod has those of
// its own kernel.
var kernels = []string{
	"proc", "sysfs", "cgroup", "cgroup2", "devtmpfs", "devpts", "debugfs", "tracefs", "securityfs", "bpf", "pstore", "efivarfs",
	"configfs", "fusectl", "mqueue", "binfmt_misc", "rpc_pipefs", "selinuxfs", "nsfs", "autofs",
}

// kernelMounts are where the kernel's own file systems are mounted. The outermost ones come
// first.
func kernelMounts() (dirs []string, err error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		at := slices.Index(fields, "-")
		if at < 6 || at+1 >= len(fields) || !slices.Contains(kernels, fields[at+1]) {
			continue
		}
		if dir := unescape(fields[4]); !slices.ContainsFunc(dirs, func(outer string) bool { return within(outer, dir) }) {
			dirs = append(dirs, dir)
		}
	}
	return dirs, lines.Err()
}

// unescape undoes how the kernel writes a path: spaces and the like by three octal digits.
func unescape(path string) string {
	for i := 0; i+3 < len(path); i++ {
		if path[i] != '\\' {
			continue
		}
		if n, err := strconv.ParseUint(path[i+1:i+4], 8, 8); err == nil {
			path = path[:i] + string([]byte{byte(n)}) + path[i+4:]
		}
	}
	return path
}
