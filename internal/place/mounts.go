package place

import (
	"bufio"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// kernels are the kernel's own file systems, by name. A pod has those of its own kernel.
var kernels = []string{
	"proc", "sysfs", "cgroup", "cgroup2", "devtmpfs", "devpts", "debugfs", "tracefs", "securityfs", "bpf", "pstore", "efivarfs",
	"configfs", "fusectl", "mqueue", "binfmt_misc", "rpc_pipefs", "selinuxfs", "nsfs", "autofs",
}

// mount is one of this process's mounts.
type mount struct {
	id     uint64
	dir    string // its mount point
	kernel bool   // the kernel's own
}

// mounts returns the present mounts.
func mounts() (all []mount, err error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		at := slices.Index(fields, "-")
		if at < 6 || at+1 >= len(fields) {
			continue
		}
		if id, err := strconv.ParseUint(fields[0], 10, 64); err == nil {
			all = append(all, mount{id: id, dir: unescape(fields[4]), kernel: slices.Contains(kernels, fields[at+1])})
		}
	}
	return all, lines.Err()
}

// kernelMounts returns the mount points of the kernel's own file systems, the outermost first.
func kernelMounts(all []mount) (dirs []string) {
	for _, m := range all {
		if m.kernel && !slices.ContainsFunc(dirs, func(outer string) bool { return within(outer, m.dir) }) {
			dirs = append(dirs, m.dir)
		}
	}
	return dirs
}

// mountOf returns the mount point of a descriptor's file system, empty if it is not mounted any more.
func mountOf(fd int, all []mount) (string, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return "", err
	}
	for _, m := range all {
		if m.id == st.Mnt_id {
			return m.dir, nil
		}
	}
	return "", nil
}

// unescape undoes the kernel's escapes in a path: three octal digits for spaces and the like.
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
