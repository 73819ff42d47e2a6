package agent_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/timeline"
	"github.com/bulkhead-project/bulkhead/oci/filter"
)

// lookAround prints the properties of a container from the program that made it, and then its first process's.
const lookAround = `hostname; cat /proc/sys/kernel/domainname; id
	stat -c '%N %f %t:%T %u:%g' / /proc /sys /dev /dev/* /dev/*/* /made /made/* /made/*/* 2>/dev/null
	cd /sys/fs/cgroup 2>/dev/null && grep -s . memory.max memory.low memory.swap.max memory.oom.group pids.max cpu.weight cpu.max \
		cpu.idle cpuset.cpus cpuset.mems hugetlb.2MB.max
	for f in / /proc /sys /dev /tmp /made /proc/sys /sys/kernel; do true >$f/written && rm $f/written && echo wrote to $f; done 2>/dev/null
	for f in zero random kmsg mem made/a; do true </dev/$f && echo opened $f; done 2>/dev/null
	mknod /tmp/node c 1 5 && true </tmp/node && echo own node
	sed 's/.*keyring *//' /proc/keys | sort -u
	` + look

// created runs a container to its end and returns its output. by is the name of the program that has made it.
func (g *guest) created(s map[string]any, change ...func(*agentv1.Create)) (by, out string, err error) {
	g.t.Helper()
	name := agentv1.Process{Container: "created"}
	ctx, steps := timeline.With(g.ctx())
	c := agentv1.Create{Container: "created", Spec: raw(g.t, s)}
	c.Image = "busybox"
	for _, f := range change {
		f(&c)
	}
	if _, err = g.Create(ctx, c); err == nil {
		g.must(g.Start(g.ctx(), name))
		out = g.ended(name)
	}
	return starter(steps), out, err
}

var (
	ids    = regexp.MustCompile(`(?m)^\d+ \d+ \d+:\d+ `)              // of mounts
	peers  = regexp.MustCompile(`(shared|master|propagate_from):\d+`) // of mounts
	inodes = regexp.MustCompile(`:\[\d+\]`)                           // of namespaces and pipes
	pipes  = regexp.MustCompile(`pipe:\[\d+\]`)
)

// alike returns the lines of an output without the differences of two equal containers. vm are the VM's namespaces.
func alike(out, vm string) []string {
	for _, ns := range strings.Fields(vm) {
		kind, _, _ := strings.Cut(ns, ":")
		out = strings.ReplaceAll(out, ns, kind+" of the VM")
	}
	out = ids.ReplaceAllString(out, "")
	out = peers.ReplaceAllString(out, "$1")
	return strings.Split(inodes.ReplaceAllString(out, ""), "\n")
}

// testMade makes the same containers with the launcher and with crun. Their first processes must find the same.
func testMade(t *testing.T, tm *template) {
	g := tm.start(t)
	g.launch("none", change(spec("sleep", "1000"), namespaces("mount"), "linux", "namespaces"))
	vm, _ := g.exec("none", "vm", process("sh", "-c", "for f in cgroup ipc mnt net pid time user uts; do readlink /proc/1/ns/$f; done"))
	g.launch("other", change(spec("sleep", "1000"), namespaces("mount", "pid", "ipc", "uts"), "linux", "namespaces"))
	profile := map[string]any{
		"defaultAction": "SCMP_ACT_ALLOW", "architectures": []string{"SCMP_ARCH_X86_64", "SCMP_ARCH_X86"},
		"syscalls": []any{map[string]any{"names": []string{"mkdir", "mkdirat", "ptrace"}, "action": "SCMP_ACT_ERRNO"}},
	}
	sets := func(ambient ...string) map[string]any {
		all := []string{"CAP_CHOWN", "CAP_KILL", "CAP_NET_RAW", "CAP_MKNOD", "CAP_DAC_OVERRIDE"}
		return map[string]any{"bounding": all, "effective": all[:2], "permitted": all[:3], "inheritable": all[1:3], "ambient": ambient}
	}
	with := func(value any, path ...string) func(map[string]any) {
		return func(s map[string]any) { change(s, value, path...) }
	}
	limited := func(kind string, values map[string]any) func(map[string]any) {
		return with(values, "linux", "resources", kind)
	}
	mounted := func(more ...any) func(map[string]any) {
		return func(s map[string]any) { s["mounts"] = append(s["mounts"].([]any), more...) }
	}
	user := func(uid, gid int, groups ...int) func(map[string]any) {
		return with(map[string]any{"uid": uid, "gid": gid, "additionalGids": groups}, "process", "user")
	}
	deny := with([]any{
		map[string]any{"allow": false, "access": "rwm"}, map[string]any{"allow": true, "type": "c", "major": 1, "minor": 5, "access": "rw"},
	}, "linux", "resources", "devices")
	n := func(path, kind string, major, minor int, more map[string]any) map[string]any {
		d := map[string]any{"path": path, "type": kind, "major": major, "minor": minor}
		maps.Copy(d, more)
		return d
	}
	for name, changes := range map[string][]func(map[string]any){
		"plain":          nil,
		"read-only root": {with(true, "root", "readonly")},
		"verbatim":       {with("true", "annotations", agentv1.Verbatim)},
		"all namespaces": {
			with(namespaces("mount", "network", "cgroup", "pid", "ipc", "uts"), "linux", "namespaces"), with("host", "hostname"),
			with("domain", "domainname"),
		},
		"no namespaces":   {with(namespaces("mount"), "linux", "namespaces")},
		"pod's processes": {with(namespaces("mount", "cgroup", "pid=bulkhead.pod"), "linux", "namespaces")},
		"other's namespaces": {with(namespaces("mount", "pid=bulkhead.container:other", "ipc=bulkhead.container:other",
			"uts=bulkhead.container:other"), "linux", "namespaces")},
		"user":   {user(1000, 1001)},
		"name":   {with(map[string]any{"username": "demo"}, "process", "user")},
		"groups": {user(12, 34, 5, 7, 3000000000)},
		"umask": {
			with("true", "annotations", agentv1.Verbatim), with(map[string]any{"uid": 0, "gid": 0, "umask": 0o077}, "process", "user"),
		},
		"capabilities":    {with(sets(), "process", "capabilities")},
		"ambient":         {with(sets("CAP_KILL", "CAP_NET_RAW", "CAP_CHOWN"), "process", "capabilities"), user(7, 7)},
		"no capabilities": {with(map[string]any{}, "process", "capabilities")},
		"no_new_privs":    {with(true, "process", "noNewPrivileges"), user(1000, 1001), with(sets("CAP_KILL"), "process", "capabilities")},
		"limits": {with([]any{
			map[string]any{"type": "RLIMIT_NOFILE", "soft": 100, "hard": 200},
			map[string]any{"type": "RLIMIT_CORE", "soft": 0, "hard": uint64(1<<64 - 1)},
		}, "process", "rlimits")},
		"score":             {with(700, "process", "oomScoreAdj")},
		"environment":       {with([]string{"A=1", "PATH=/bin", "A=2", "EMPTY=", "HOME=/x", "A=3=4"}, "process", "env")},
		"directory":         {with("/home/demo", "process", "cwd"), user(1000, 1001)},
		"missing directory": {with("/made/deep", "process", "cwd"), user(1000, 1001)},
		"memory":            {limited("memory", map[string]any{"limit": 64 << 20, "swap": 96 << 20, "reservation": 32 << 20})},
		"endless memory":    {limited("memory", map[string]any{"limit": -1, "swap": -1, "disableOOMKiller": false})},
		"shares":            {limited("cpu", map[string]any{"shares": 512})},
		"quota":             {limited("cpu", map[string]any{"quota": 20000, "period": 50000, "shares": 2})},
		"only a quota":      {limited("cpu", map[string]any{"quota": 30000})},
		"only a period":     {limited("cpu", map[string]any{"period": 50000})},
		"processors":        {limited("cpu", map[string]any{"cpus": "0", "mems": "0", "idle": 1})},
		"tasks":             {limited("pids", map[string]any{"limit": 100})},
		"endless tasks":     {limited("pids", map[string]any{"limit": -1})},
		"unified":           {limited("unified", map[string]any{"memory.oom.group": "1", "cpu.weight": "77"})},
		"empty resources":   {with(map[string]any{"memory": map[string]any{}, "blockIO": map[string]any{}}, "linux", "resources")},
		"device rules":      {deny},
		"devices": {with([]any{n("/dev/made", "c", 1, 5, map[string]any{"fileMode": 0o640, "uid": 3, "gid": 4}),
			n("/dev/deep/er", "b", 7, 300, nil), n("/dev/fifo", "p", 0, 0, nil), n("/dev/null", "c", 1, 3,
				map[string]any{"fileMode": 0o600})}, "linux", "devices")},
		"masked": {with([]string{"/proc/kcore", "/proc/keys", "/sys/kernel", "/proc/missing", "/proc/timer_list"}, "linux",
			"maskedPaths")},
		"read-only": {with([]string{"/proc/sys", "/proc/bus", "/proc/irq", "/missing", "/proc/sysrq-trigger"}, "linux", "readonlyPaths")},
		"bound": {mounted(mount("/made/here", "bind", "/sys/kernel", "rbind", "ro"), mount("/made/file", "bind",
			"/proc/version", "bind", "nosuid", "noexec"))},
		"bound, read-only": {
			with(true, "root", "readonly"),
			mounted(mount("/tmp/x", "", "/sys/kernel", "bind", "rw"), mount("/tmp/y/z", "tmpfs", "tmpfs", "ro", "size=1m")),
		},
		"propagation": {mounted(mount("/made/slave", "bind", "/sys/kernel", "rbind", "rslave"), mount("/made/shared", "bind",
			"/sys/kernel", "rbind", "rshared"))},
		"file systems": {mounted(mount("/dev/mqueue", "mqueue", "mqueue", "nosuid", "noexec", "nodev"), mount("/made", "tmpfs",
			"tmpfs", "noexec", "mode=0700", "size=65536k", "relatime"), mount("/proc/fs", "sysfs", "sysfs", "rw"))},
		"over another": {mounted(mount("/dev/shm", "tmpfs", "shm", "nosuid", "noatime", "mode=1777"), mount("/etc", "tmpfs",
			"tmpfs"), mount("/etc/deep", "bind", "/proc/version", "bind"))},
		"link":              {mounted(mount("/dev/fd", "bind", "/proc/version", "bind"))},
		"VM's devices":      {mounted(mount("/dev", "bind", "/dev", "rbind", "rw"))},
		"filter":            {with(profile, "linux", "seccomp"), with(sets(), "process", "capabilities")},
		"filter and user":   {with(profile, "linux", "seccomp"), user(1000, 1001, 1)},
		"filter and no_new": {with(profile, "linux", "seccomp"), with(true, "process", "noNewPrivileges"), user(1000, 1001)},
	} {
		container := func(more ...func(map[string]any)) map[string]any {
			s := spec("sh", "-c", lookAround, "look", "two words", "")
			for _, f := range slices.Concat(changes, more) {
				f(s)
			}
			return compiled(t, s)
		}
		by, ours, err := g.created(container())
		if by != agentv1.PartLaunch || err != nil || len(ours) < 500 || !strings.HasSuffix(ours, "\n0") {
			t.Errorf("%s: made by %q, %v; %d bytes %q", name, by, err, len(ours), ours[max(0, len(ours)-100):])
		}
		by, theirs, err := g.created(container(with(map[string]any{"height": 1, "width": 1}, "process", "consoleSize")))
		if by != agentv1.PartCrun || err != nil {
			t.Errorf("%s for crun: made by %q, %v", name, by, err)
		}
		if diff := cmp.Diff(alike(theirs, vm), alike(ours, vm)); diff != "" {
			t.Errorf("%s: crun's and the launcher's containers differ:\n%s", name, diff)
		}
	}
}

// compiled moves the filter of system calls to the annotation, as the host does.
func compiled(t *testing.T, s map[string]any) map[string]any {
	t.Helper()
	var spec specs.Spec
	if err := json.Unmarshal(raw(t, s), &spec); err != nil {
		t.Fatal(err)
	}
	if spec.Linux.Seccomp == nil {
		return s
	}
	filter.Move(&spec)
	s["annotations"] = spec.Annotations
	return change(s, spec.Linux.Seccomp, "linux", "seccomp")
}
