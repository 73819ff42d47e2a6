package check

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/probe"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/shim/confine"
)

// TestJudgements checks the findings for hosts with missing parts.
func TestJudgements(t *testing.T) {
	roots := dirs.Roots{Data: "/data", State: "/state"}
	broken := errors.New("broken")
	qemu7 := emulator{path: "/usr/bin/qemu", version: "QEMU emulator version 7.2.22 (Debian)"}
	bundle := guest.Bundle{Dir: "/guest", Manifest: guest.Manifest{Agent: "a1", Kernel: guest.Kernel{Release: "6.1"}}}
	for _, tc := range []struct {
		name           string
		got            Finding
		status         Status
		reason, remedy string // parts of the texts
	}{
		{name: "directories", got: judgeDirectories(roots, nil, nil, nil), status: OK, reason: "data in /data, state in /state"},
		{
			name:   "state too long",
			got:    judgeDirectories(dirs.Roots{State: "/a/state/directory/that/is/long"}, nil, nil, nil),
			status: Fail,
			reason: "room for 23",
			remedy: "BULKHEAD_STATE",
		},
		{
			name:   "a stranger's directory",
			got:    judgeDirectories(roots, dirs.ErrForeign, nil, nil),
			status: Fail,
			reason: "another user",
			remedy: "BULKHEAD_DATA",
		},
		{name: "cannot be made", got: judgeDirectories(roots, broken, nil, nil), status: Fail, reason: "broken", remedy: "BULKHEAD_DATA"},
		{
			name:   "data not writable",
			got:    judgeDirectories(roots, nil, broken, nil),
			status: Fail,
			reason: "/data cannot be written",
			remedy: "BULKHEAD_DATA",
		},
		{
			name:   "state not writable",
			got:    judgeDirectories(roots, nil, nil, broken),
			status: Fail,
			reason: "/state cannot be written",
			remedy: "BULKHEAD_STATE",
		},

		{name: "disk", got: judgeDisk(storage{path: "/data", free: 20 << 30}), status: OK, reason: "20 GiB free"},
		{name: "no disk", got: judgeDisk(storage{path: "/data", freeErr: broken}), status: Fail, reason: "broken", remedy: "BULKHEAD_DATA"},
		{name: "disk full", got: judgeDisk(storage{path: "/data", free: 10 << 20}), status: Fail, reason: "10 MiB free", remedy: "image rm"},
		{
			name:   "disk nearly full",
			got:    judgeDisk(storage{path: "/data", free: 1 << 30}),
			status: Warn,
			reason: "1.0 GiB free",
			remedy: "image rm",
		},
		{
			name:   "small files only",
			got:    judgeDisk(storage{path: "/data", free: 20 << 30, sparseErr: broken}),
			status: Fail,
			reason: "64 GiB: broken",
			remedy: "another file system",
		},
		{
			name:   "no sparse files",
			got:    judgeDisk(storage{path: "/data", free: 20 << 30, sparse: 1 << 30}),
			status: Fail,
			reason: "would take 1.0 GiB",
			remedy: "another file system",
		},
		{
			name:   "in memory",
			got:    judgeDisk(storage{path: "/data", free: 20 << 30, memoryOnly: true}),
			status: Warn,
			reason: "lost at the next boot",
			remedy: "another file system",
		},

		{name: "memory", got: judgeMemory(ram{total: 8192, available: 4096}, 4), status: OK, reason: "4.0 GiB of 8.0 GiB available, 4 CPUs"},
		{
			name:   "little memory",
			got:    judgeMemory(ram{total: 2048, available: 512}, 1),
			status: Warn,
			reason: "512 MiB of 2.0 GiB",
			remedy: "end other programs",
		},
		{
			name:   "no memory",
			got:    judgeMemory(ram{total: 2048, available: 64}, 1),
			status: Fail,
			reason: "64 MiB of 2.0 GiB",
			remedy: "end other programs",
		},
		{name: "memory unknown", got: judgeMemory(ram{err: broken}, 1), status: Warn, reason: "broken"},

		{
			name:   "cgroup2",
			got:    judgeCgroups(hostcgroup.Support{Version: 2, Controllers: []string{"memory", "cpu", "pids"}}, true),
			status: OK,
			reason: "cgroup2: memory, cpu, pids",
		},
		{
			name:   "cgroup1",
			got:    judgeCgroups(hostcgroup.Support{Version: 1, Controllers: []string{"memory", "cpu", "pids"}}, true),
			status: OK,
			reason: "cgroup1",
		},
		{
			name:   "no memory controller",
			got:    judgeCgroups(hostcgroup.Support{Version: 2, Controllers: []string{"cpu"}, Missing: "no controller of memory, pids"}, true),
			status: Warn,
			reason: "no controller of memory, pids",
			remedy: "cgroup_disable",
		},
		{
			name:   "no CPU controller",
			got:    judgeCgroups(hostcgroup.Support{Version: 2, Controllers: []string{"memory"}, Missing: "no controller of cpu"}, false),
			status: Warn,
			reason: "memory only: no controller of cpu",
			remedy: "Delegate=cpu",
		},
		{
			name:   "no cgroups",
			got:    judgeCgroups(hostcgroup.Support{Missing: "none are mounted"}, true),
			status: Warn,
			reason: "none are mounted",
			remedy: "mount cgroup2",
		},
		{
			name:   "no delegation",
			got:    judgeCgroups(hostcgroup.Support{Missing: "not delegated"}, false),
			status: Warn,
			reason: "not delegated",
			remedy: "manager for this user",
		},

		{name: "shared directories", got: judgeShares(nil), status: OK, reason: "can be shared"},
		{
			name:   "old kernel",
			got:    judgeShares(fmt.Errorf("Linux 5.14 or later is needed: %w", broken)),
			status: Warn,
			reason: "no directory of the host can be shared with a pod",
			remedy: "boot Linux 5.14 or later",
		},
		{
			name:   "KSM",
			got:    judgeMerging("1"),
			status: Warn,
			reason: "KSM",
			remedy: "/sys/kernel/mm/ksm/run",
		},
		{name: "no KSM", got: judgeMerging("0"), status: OK, reason: "no memory"},
		{name: "KSM not built", got: judgeMerging(""), status: OK, reason: "no memory"},

		{name: "Landlock", got: judgeLandlock(nil), status: OK, reason: "the host's files"},
		{
			name:   "old Landlock",
			got:    judgeLandlock(fmt.Errorf("%w: version 2", confine.ErrPartial)),
			status: Warn,
			reason: "version 2",
			remedy: "6.12",
		},
		{
			name:   "no Landlock",
			got:    judgeLandlock(broken),
			status: Warn,
			reason: "broken: a compromised VM can reach the files",
			remedy: "lsm=",
		},

		{name: "programs", got: judgePrograms([]string{"/l/bulkhead-shim"}, nil), status: OK, reason: "/l/bulkhead-shim"},
		{name: "no shim", got: judgePrograms([]string{""}, dirs.ErrNotInstalled), status: Fail, reason: "not installed", remedy: "make install"},

		{name: "QEMU", got: judgeQEMU(qemu7), status: OK, reason: "7.2.22 (Debian), /usr/bin/qemu: seccomp; templates by sealed memory"},
		{name: "new QEMU", got: judgeQEMU(emulator{path: "/q", version: "QEMU emulator version 10.0.2"}), status: OK, reason: "opened read-only"},
		{
			name:   "old QEMU",
			got:    judgeQEMU(emulator{path: "/q", version: "QEMU emulator version 6.2.0"}),
			status: Fail,
			reason: "too old",
			remedy: "7.2 or later",
		},
		{
			name:   "untried QEMU",
			got:    judgeQEMU(emulator{path: "/q", version: "QEMU emulator version 7.1.0"}),
			status: Warn,
			reason: "older than the versions",
			remedy: "7.2 or later",
		},
		{name: "odd QEMU", got: judgeQEMU(emulator{path: "/q", version: "something"}), status: Warn, reason: "could not be read"},
		{
			name:   "QEMU without seccomp",
			got:    judgeQEMU(emulator{path: "/q", version: qemu7.version, sandbox: broken}),
			status: Fail,
			reason: "cannot confine itself: broken",
			remedy: "seccomp",
		},
		{name: "no QEMU", got: judgeQEMU(emulator{err: broken}), status: Fail, reason: "broken", remedy: "apt-get install qemu-system-x86"},

		{name: "guest", got: judgeGuest(inside{bundle: bundle, agent: "a1"}), status: OK, reason: "kernel 6.1"},
		{name: "guest without an agent beside it", got: judgeGuest(inside{bundle: bundle}), status: OK, reason: "kernel 6.1"},
		{
			name:   "guest of another build",
			got:    judgeGuest(inside{bundle: bundle, agent: "a2"}),
			status: Warn,
			reason: "another build",
			remedy: "make guest",
		},
		{name: "no guest", got: judgeGuest(inside{err: os.ErrNotExist}), status: Fail, reason: "not exist", remedy: "make guest"},

		{
			name:   "KVM",
			got:    judgeAccelerator(kvm{verdict: probe.Verdict{Outcome: probe.Works, Reason: "a guest has booted under KVM"}}),
			status: OK,
			reason: "KVM: a guest has booted",
		},
		{
			name:   "no KVM",
			got:    judgeAccelerator(kvm{verdict: probe.Verdict{Outcome: probe.Unusable, Reason: "there is no /dev/kvm", Remedy: "load kvm_intel"}}),
			status: Warn,
			reason: "there is no /dev/kvm; VMs are emulated",
			remedy: "load kvm_intel",
		},
		{
			name:   "KVM hangs",
			got:    judgeAccelerator(kvm{verdict: probe.Verdict{Outcome: probe.Unusable, Reason: "did not boot"}}),
			status: Warn,
			reason: "did not boot; VMs are emulated",
			remedy: "bare metal",
		},
		{name: "KVM not probed", got: judgeAccelerator(kvm{err: broken}), status: Warn, reason: "could not be probed: broken"},

		{
			name:   "boot",
			got:    judgeBoot(booted{accel: hypervisor.TCG, took: 1500 * time.Millisecond}),
			status: OK,
			reason: "under tcg and its agent answered after 1.5 s",
		},
		{
			name:   "no boot",
			got:    judgeBoot(booted{accel: hypervisor.KVM, err: broken}),
			status: Fail,
			reason: "did not boot under kvm: broken",
			remedy: "--detail",
		},

		{
			name:   "forks",
			got:    judgeForks(forked{accel: hypervisor.TCG, arch: "amd64", took: 6300 * time.Microsecond}),
			status: OK,
			reason: "within 6.3 ms",
		},
		{name: "KVM needs no forks", got: judgeForks(forked{accel: hypervisor.KVM, arch: "amd64"}), status: OK, reason: "not needed"},
		{
			name:   "forks on ARM",
			got:    judgeForks(forked{accel: hypervisor.TCG, arch: "arm64", none: broken}),
			status: Warn,
			reason: "only x86-64",
		},
		{
			name:   "no library",
			got:    judgeForks(forked{accel: hypervisor.TCG, arch: "amd64", none: broken}),
			status: Warn,
			reason: "broken; pods' VMs are cloned",
			remedy: "make install",
		},
		{
			name:   "no fork",
			got:    judgeForks(forked{accel: hypervisor.TCG, arch: "amd64", err: broken}),
			status: Warn,
			reason: "could not be forked: broken",
			remedy: "glibc",
		},

		{name: "user namespaces", got: judgeNamespaces(userns{}), status: OK, reason: "can make"},
		{
			name:   "switched off",
			got:    judgeNamespaces(userns{err: broken, clone: "0"}),
			status: Warn,
			reason: "broken",
			remedy: "unprivileged_userns_clone=1",
		},
		{
			name:   "by AppArmor",
			got:    judgeNamespaces(userns{err: broken, apparmor: "1", clone: "1"}),
			status: Warn,
			reason: "broken",
			remedy: "apparmor_restrict_unprivileged_userns=0",
		},
		{
			name:   "none allowed",
			got:    judgeNamespaces(userns{err: broken, most: "0"}),
			status: Warn,
			reason: "broken",
			remedy: "max_user_namespaces",
		},
		{
			name:   "in a container",
			got:    judgeNamespaces(userns{err: broken, most: "100"}),
			status: Warn,
			reason: "broken",
			remedy: "seccomp profile",
		},
		{
			name:   "no ip",
			got:    judgeNamespaces(userns{tools: []string{"iproute2"}}),
			status: Warn,
			reason: "programs",
			remedy: "apt-get install iproute2",
		},

		{name: "pasta", got: judgePasta("/usr/bin/pasta", "pasta 2024", nil), status: OK, reason: "2024, /usr/bin/pasta"},
		{name: "pasta of Debian", got: judgePasta("/usr/bin/pasta", "unknown version", nil), status: OK, reason: "/usr/bin/pasta"},
		{name: "no pasta", got: judgePasta("", "", broken), status: Warn, reason: "is missing", remedy: "passt"},

		{name: "tun", got: judgeTun(nil, false), status: OK, reason: "can be opened"},
		{name: "tun of root", got: judgeTun(nil, true), status: OK, reason: "of its own"},
		{name: "tun forbidden", got: judgeTun(os.ErrPermission, false), status: Warn, reason: "by this user", remedy: "chmod 0666"},
		{name: "no tun", got: judgeTun(os.ErrNotExist, false), status: Warn, reason: "not exist", remedy: "modprobe tun"},

		{name: "network", got: judgeNetwork(userNetwork{kind: network.KindUser}), status: OK, reason: "but not the host"},
		{
			name:   "restricted",
			got:    judgeNetwork(userNetwork{kind: network.KindRestricted, reason: "no traffic leaves the pod", remedies: []string{"modprobe tun"}}),
			status: Warn,
			reason: "restricted: no traffic leaves the pod; published ports work",
			remedy: "modprobe tun; or bulkhead run --allow-host-loopback",
		},
		{name: "network not tried", got: judgeNetwork(userNetwork{err: broken}), status: Warn, reason: "broken"},
	} {
		if tc.got.Status != tc.status || !strings.Contains(tc.got.Reason, tc.reason) || !strings.Contains(tc.got.Remedy, tc.remedy) ||
			tc.remedy == "" && tc.got.Remedy != "" {
			t.Errorf("%s: %+v, want %s with %q and %q", tc.name, tc.got, tc.status, tc.reason, tc.remedy)
		}
		if strings.Contains(tc.got.Reason+tc.got.Remedy, "\n") {
			t.Errorf("%s: more than one line: %+v", tc.name, tc.got)
		}
	}
}

func TestParseMeminfo(t *testing.T) {
	r := parseMeminfo("MemTotal:       16384 kB\nMemFree:  1 kB\nMemAvailable:    8192 kB\nHugePages_Total:       0\n")
	if r.total != 16 || r.available != 8 {
		t.Errorf("%+v", r)
	}
}
