package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What one idle pod takes, measured, and what makes several worth while; MiB.
const (
	leastMemory  = 128
	enoughMemory = 1024
)

// ram is the host's memory in MiB.
type ram struct {
	total, available int
	err              error
}

func (m *machine) memory(context.Context) Finding {
	b, err := os.ReadFile("/proc/meminfo")
	r := parseMeminfo(string(b))
	r.err = err
	return judgeMemory(r, runtime.NumCPU())
}

func parseMeminfo(text string) ram {
	var r ram
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, ":")
		kib, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB")) // another unit is not a line of interest
		switch name {
		case "MemTotal":
			r.total = kib >> 10
		case "MemAvailable":
			r.available = kib >> 10
		}
	}
	return r
}

func judgeMemory(r ram, cpus int) Finding {
	if r.err != nil || r.total == 0 {
		return warn(fmt.Sprintf("could not tell the host's memory: %v", r.err), "")
	}
	reason := fmt.Sprintf("%s of %s available, %d CPUs: a pod can be no larger than the host", mebibytes(r.available), mebibytes(r.total), cpus)
	switch {
	case r.available < leastMemory:
		return fail(reason, "end other programs, or add memory")
	case r.available < enoughMemory:
		return warn(reason, "end other programs, or add memory")
	}
	return ok(reason)
}

func mebibytes(n int) string { return size(uint64(n) << 20) }

// groups is what there is of cgroups.
type groups struct {
	unified bool   // cgroup2 at the root, else the older controllers
	memory  bool   // the memory controller is there
	own     string // this process's own cgroup, as the kernel names it
	err     error
}

func (m *machine) cgroups(context.Context) Finding {
	return judgeCgroups(lookCgroups("/sys/fs/cgroup"))
}

func lookCgroups(root string) groups {
	var g groups
	var fs unix.Statfs_t
	if g.err = unix.Statfs(root, &fs); g.err != nil {
		return g
	}
	g.unified = fs.Type == unix.CGROUP2_SUPER_MAGIC
	if g.unified {
		b, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
		g.err = err
		for name := range strings.FieldsSeq(string(b)) {
			g.memory = g.memory || name == "memory"
		}
	} else {
		_, err := os.Stat(filepath.Join(root, "memory", "memory.oom_control"))
		g.memory = err == nil
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			g.err = err
		}
	}
	return g
}

// judgeCgroups: containers' limits are enforced in the guest and a machine is
// no larger than its pod, so the host's cgroups only tell why a machine died.
func judgeCgroups(g groups) Finding {
	inside := "limits of containers are enforced inside the guest"
	switch {
	case g.err != nil:
		return warn(fmt.Sprintf("no cgroups on the host (%v): %s, but a machine killed for lack of the host's memory is not told from one killed otherwise", g.err, inside),
			"mount cgroup2 on /sys/fs/cgroup")
	case !g.memory:
		return warn("the host's cgroups have no memory controller: "+inside+", but a machine killed for lack of the host's memory is not told from one killed otherwise",
			"boot without cgroup_disable=memory")
	case g.unified:
		return ok("cgroup2 with the memory controller; " + inside)
	}
	return ok("the older cgroup1 controllers, memory among them; " + inside)
}
