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

// TestJudgements is what is said of machines that lack something.
func TestJudgements(t *testing.T) {
	roots := dirs.Roots{Data: "/data", State: "/state"}
	broken := errors.New("broken")
	qemu7 := emulator{path: "/usr/bin/qemu", version: "QEMU emulator version 7.2.22 (Debian)"}
	bundle := guest.Bundle{Dir: "/guest", Manifest: guest.Manifest{Agent: "a1", Kernel: guest.Kernel{Release: "6.1"}}}
	for _, tc := range []struct {
		name           string
		got            Finding
		status         Status
		reason, remedy string // parts of each
	}{
		{"directories", judgeDirectories(roots, nil, nil, nil), OK, "data in /data, state in /state", ""},
		{"state too long", judgeDirectories(dirs.Roots{State: "/a/state/directory/that/is/long"}, nil, nil, nil), Fail, "room for 23", "BULKHEAD_STATE"},
		{"a stranger's directory", judgeDirectories(roots, dirs.ErrForeign, nil, nil), Fail, "another user", "BULKHEAD_DATA"},
		{"cannot be made", judgeDirectories(roots, broken, nil, nil), Fail, "broken", "BULKHEAD_DATA"},
		{"data not writable", judgeDirectories(roots, nil, broken, nil), Fail, "/data cannot be written", "BULKHEAD_DATA"},
		{"state not writable", judgeDirectories(roots, nil, nil, broken), Fail, "/state cannot be written", "BULKHEAD_STATE"},

		{"disk", judgeDisk(storage{path: "/data", free: 20 << 30}), OK, "20 GiB free", ""},
		{"no disk", judgeDisk(storage{path: "/data", freeErr: broken}), Fail, "broken", "BULKHEAD_DATA"},
		{"disk full", judgeDisk(storage{path: "/data", free: 10 << 20}), Fail, "10 MiB free", "image rm"},
		{"disk nearly full", judgeDisk(storage{path: "/data", free: 1 << 30}), Warn, "1.0 GiB free", "image rm"},
		{"small files only", judgeDisk(storage{path: "/data", free: 20 << 30, sparseErr: broken}), Fail, "64 GiB: broken", "another file system"},
		{"no sparse files", judgeDisk(storage{path: "/data", free: 20 << 30, sparse: 1 << 30}), Fail, "would take 1.0 GiB", "another file system"},
		{"in memory", judgeDisk(storage{path: "/data", free: 20 << 30, memoryOnly: true}), Warn, "lost at the next boot", "another file system"},

		{"memory", judgeMemory(ram{total: 8192, available: 4096}, 4), OK, "4.0 GiB of 8.0 GiB available, 4 CPUs", ""},
		{"little memory", judgeMemory(ram{total: 2048, available: 512}, 1), Warn, "512 MiB of 2.0 GiB", "end other programs"},
		{"no memory", judgeMemory(ram{total: 2048, available: 64}, 1), Fail, "64 MiB of 2.0 GiB", "end other programs"},
		{"memory unknown", judgeMemory(ram{err: broken}, 1), Warn, "broken", ""},

		{"cgroup2", judgeCgroups(hostcgroup.Support{Version: 2, Controllers: []string{"memory", "cpu", "pids"}}, true), OK, "cgroup2: memory, cpu, pids", ""},
		{"cgroup1", judgeCgroups(hostcgroup.Support{Version: 1, Controllers: []string{"memory", "cpu", "pids"}}, true), OK, "cgroup1", ""},
		{"no memory controller", judgeCgroups(hostcgroup.Support{Version: 2, Controllers: []string{"cpu"}, Missing: "no controller of memory, pids"}, true), Warn, "no controller of memory, pids", "cgroup_disable"},
		{"no CPU controller", judgeCgroups(hostcgroup.Support{Version: 2, Controllers: []string{"memory"}, Missing: "no controller of cpu"}, true), Warn, "memory only: no controller of cpu", ""},
		{"no cgroups", judgeCgroups(hostcgroup.Support{Missing: "none are mounted"}, true), Warn, "none are mounted", "mount cgroup2"},
		{"no delegation", judgeCgroups(hostcgroup.Support{Missing: "not delegated"}, false), Warn, "not delegated", "systemd-run --user"},

		{"Landlock", judgeLandlock(nil), OK, "none of the host's files", ""},
		{"old Landlock", judgeLandlock(fmt.Errorf("%w: version 2", confine.ErrPartial)), Warn, "version 2", "6.12"},
		{"no Landlock", judgeLandlock(broken), Warn, "broken: a virtual machine that was taken over reaches the files", "lsm="},

		{"programs", judgePrograms([]string{"/l/bulkhead-shim"}, nil), OK, "/l/bulkhead-shim", ""},
		{"no shim", judgePrograms([]string{""}, dirs.ErrNotInstalled), Fail, "not installed", "make install"},

		{"QEMU", judgeQEMU(qemu7), OK, "7.2.22 (Debian), /usr/bin/qemu: seccomp; templates by sealed memory", ""},
		{"new QEMU", judgeQEMU(emulator{path: "/q", version: "QEMU emulator version 10.0.2"}), OK, "for reading only", ""},
		{"old QEMU", judgeQEMU(emulator{path: "/q", version: "QEMU emulator version 6.2.0"}), Warn, "older than any", "7.2 or later"},
		{"odd QEMU", judgeQEMU(emulator{path: "/q", version: "something"}), Warn, "could not be read", ""},
		{"QEMU without seccomp", judgeQEMU(emulator{path: "/q", version: qemu7.version, sandbox: broken}), Fail, "cannot confine itself: broken", "seccomp"},
		{"no QEMU", judgeQEMU(emulator{err: broken}), Fail, "broken", "apt-get install qemu-system-x86"},

		{"guest", judgeGuest(inside{bundle: bundle, agent: "a1"}), OK, "kernel 6.1", ""},
		{"guest without an agent beside it", judgeGuest(inside{bundle: bundle}), OK, "kernel 6.1", ""},
		{"guest of another build", judgeGuest(inside{bundle: bundle, agent: "a2"}), Warn, "another build", "make guest"},
		{"no guest", judgeGuest(inside{err: os.ErrNotExist}), Fail, "not exist", "make guest"},

		{"KVM", judgeAccelerator(kvm{verdict: probe.Verdict{Outcome: probe.Works, Reason: "a guest has booted under KVM"}}), OK, "KVM: a guest has booted", ""},
		{"no KVM", judgeAccelerator(kvm{verdict: probe.Verdict{Outcome: probe.Unusable, Reason: "there is no /dev/kvm", Remedy: "load kvm_intel"}}), Warn, "there is no /dev/kvm; machines are emulated", "load kvm_intel"},
		{"KVM hangs", judgeAccelerator(kvm{verdict: probe.Verdict{Outcome: probe.Unusable, Reason: "did not boot"}}), Warn, "did not boot; machines are emulated", "bare metal"},
		{"KVM not probed", judgeAccelerator(kvm{err: broken}), Warn, "could not be probed: broken", ""},

		{"boot", judgeBoot(booted{accel: hypervisor.TCG, took: 1500 * time.Millisecond}), OK, "under tcg and its agent answered after 1.5 s", ""},
		{"no boot", judgeBoot(booted{accel: hypervisor.KVM, err: broken}), Fail, "did not boot under kvm: broken", "--detail"},

		{"user namespaces", judgeNamespaces(userns{}), OK, "can make", ""},
		{"switched off", judgeNamespaces(userns{err: broken, clone: "0"}), Warn, "broken", "unprivileged_userns_clone=1"},
		{"by AppArmor", judgeNamespaces(userns{err: broken, apparmor: "1", clone: "1"}), Warn, "broken", "apparmor_restrict_unprivileged_userns=0"},
		{"none allowed", judgeNamespaces(userns{err: broken, most: "0"}), Warn, "broken", "max_user_namespaces"},
		{"in a container", judgeNamespaces(userns{err: broken, most: "100"}), Warn, "broken", "seccomp profile"},
		{"no ip", judgeNamespaces(userns{tools: []string{"iproute2"}}), Warn, "programs", "apt-get install iproute2"},

		{"pasta", judgePasta("/usr/bin/pasta", "pasta 2024", nil), OK, "2024, /usr/bin/pasta", ""},
		{"pasta of Debian", judgePasta("/usr/bin/pasta", "unknown version", nil), OK, "/usr/bin/pasta", ""},
		{"no pasta", judgePasta("", "", broken), Warn, "not there", "passt"},

		{"tun", judgeTun(nil, false), OK, "can be opened", ""},
		{"tun of root", judgeTun(nil, true), OK, "of its own", ""},
		{"tun forbidden", judgeTun(os.ErrPermission, false), Warn, "by this user", "chmod 0666"},
		{"no tun", judgeTun(os.ErrNotExist, false), Warn, "not exist", "modprobe tun"},

		{"network", judgeNetwork(userNetwork{kind: network.KindUser}), OK, "no address of the host", ""},
		{"restricted", judgeNetwork(userNetwork{kind: network.KindRestricted, reason: "no traffic leaves the pod", remedies: []string{"modprobe tun"}}),
			Warn, "restricted: no traffic leaves the pod; published ports work", "modprobe tun; or bulkhead run --allow-host-loopback"},
		{"network not tried", judgeNetwork(userNetwork{err: broken}), Warn, "broken", ""},
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
