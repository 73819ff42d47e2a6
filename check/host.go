package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"strings"

	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/internal/unit"
	"github.com/bulkhead-project/bulkhead/share/attach"
	"github.com/bulkhead-project/bulkhead/shim/confine"
)

// The measured memory of an idle pod, and the memory that makes several pods worthwhile; MiB.
const (
	leastMemory  = 128
	enoughMemory = 1024
)

// ram is the host's memory in MiB.
type ram struct {
	total, available int
	err              error
}

func (m *host) memory(context.Context) Finding {
	b, err := os.ReadFile("/proc/meminfo")
	r := parseMeminfo(string(b))
	r.err = err
	return judgeMemory(r, runtime.NumCPU())
}

func parseMeminfo(text string) ram {
	var r ram
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, ":")
		kib, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB")) // other units do not matter
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
		return warn(fmt.Sprintf("cannot read the host's memory: %v", r.err), "")
	}
	reason := fmt.Sprintf("%s of %s available, %d CPUs: a pod can be no larger than the host",
		mebibytes(r.available), mebibytes(r.total), cpus)
	switch {
	case r.available < leastMemory:
		return fail(reason, "end other programs, or add memory")
	case r.available < enoughMemory:
		return warn(reason, "end other programs, or add memory")
	}
	return ok(reason)
}

func mebibytes(n int) string { return size(uint64(n) << 20) }

// cgroups tries cgroups where the engine has them: in a unit of systemd if possible.
func (m *host) cgroups(ctx context.Context) Finding {
	tag := "bulkhead-check-" + strconv.Itoa(os.Getpid())
	err := unit.Enter(ctx, tag+".scope")
	h := hostcgroup.Find(tag)
	defer h.Tidy()
	root := os.Geteuid() == 0
	found := judgeCgroups(h.Support(), root)
	if me, userErr := user.Current(); found.Status == OK && !root && err == nil && userErr == nil && !unit.Lingers(me.Username) {
		return warn(found.Reason+"; pods end with this user's last session", "loginctl enable-linger "+me.Username)
	}
	return found
}

// judgeCgroups judges the host's cgroups. The guest enforces the containers' limits; the host's cgroups contain a
// VM that its guest has taken over.
func judgeCgroups(s hostcgroup.Support, root bool) Finding {
	const without = "limits of containers are enforced inside the guest, but nothing holds a virtual machine to them " +
		"that has been taken over, and converters of images have no common limit of memory"
	switch {
	case s.Version == 0 && root:
		return warn(fmt.Sprintf("no cgroups for pods (%s): %s", s.Missing, without),
			"mount cgroup2 on /sys/fs/cgroup, and leave its top to be written to")
	case s.Version == 0:
		return warn(fmt.Sprintf("no cgroups for pods (%s): %s", s.Missing, without),
			"log in so that systemd runs a manager for this user (ssh, login, machinectl shell; not su or cron), or run it as root")
	case !s.Has("memory"):
		return warn(fmt.Sprintf("cgroup%d without the memory controller (%s): %s", s.Version, s.Missing, without),
			"boot without cgroup_disable=memory")
	case s.Missing != "":
		return warn(fmt.Sprintf("cgroup%d with %s only: %s", s.Version, strings.Join(s.Controllers, ", "), s.Missing),
			lackingController(s, root))
	}
	return ok(fmt.Sprintf("cgroup%d: %s of each VM are limited on the host, and those of its containers inside the guest",
		s.Version, strings.Join(s.Controllers, ", ")))
}

// lackingController is the remedy for a missing controller other than memory.
func lackingController(s hostcgroup.Support, root bool) string {
	var lacking []string
	for _, c := range []string{"cpu", "pids"} {
		if !s.Has(c) {
			lacking = append(lacking, c)
		}
	}
	switch {
	case s.Version == 1 && !root:
		return "run it as root: users are given no older controllers (cgroup1)"
	case s.Version == 1:
		const mount = "mkdir -p /sys/fs/cgroup/%[1]s; mount -t cgroup -o %[1]s %[1]s /sys/fs/cgroup/%[1]s"
		return "boot with cgroup2 alone, or mount it: " + fmt.Sprintf(mount, lacking[0])
	case root:
		return "boot without cgroup_disable=" + strings.Join(lacking, ",") + ", and have no older controllers (cgroup1) mounted"
	}
	return "as root, give users' sessions these: Delegate=cpu memory pids under [Service] in " +
		"/etc/systemd/system/user@.service.d/delegate.conf, systemctl daemon-reload, and log in again"
}

// merging warns of KSM for programs that have enabled it for all of their memory (prctl(2), PR_SET_MEMORY_MERGE).
func (m *host) merging(context.Context) Finding {
	b, _ := os.ReadFile("/sys/kernel/mm/ksm/run") // not every kernel has it
	return judgeMerging(strings.TrimSpace(string(b)))
}

func judgeMerging(run string) Finding {
	if run == "1" {
		return warn("KSM runs: it merges equal pages of programs that ask for it, and the duration of a write then shows the content of "+
			"others' memory; QEMU does not ask for it",
			"echo 2 > /sys/kernel/mm/ksm/run, and disable the service that starts it (ksm, ksmtuned)")
	}
	return ok("no memory is merged with others' (KSM)")
}

func (m *host) shares(context.Context) Finding { return judgeShares(attach.Supported()) }

func judgeShares(err error) Finding {
	if err != nil {
		return warn(fmt.Sprintf("no directory of the host can be shared with a pod (-v, hostPath, volumes of a node): %v", err),
			"boot Linux 5.14 or later")
	}
	return ok("directories of the host can be shared with pods")
}

func (m *host) landlock(context.Context) Finding { return judgeLandlock(confine.Landlock()) }

// judgeLandlock judges the second wall, behind the VM.
func judgeLandlock(err error) Finding {
	const remedy = "boot Linux 6.12 or later"
	switch {
	case err == nil:
		return ok("a compromised VM cannot reach the host's files, sockets and processes")
	case errors.Is(err, confine.ErrPartial):
		return warn(err.Error(), remedy)
	}
	return warn(fmt.Sprintf("%v: a compromised VM can reach the files of its user", err),
		remedy+", with landlock in CONFIG_LSM or lsm=")
}
