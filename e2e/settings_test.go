package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// exits7 is a program for 32-bit processors that exits with 7, in the notation of printf.
const exits7 = `\177\105\114\106\1\1\1\0\0\0\0\0\0\0\0\0\2\0\3\0\1\0\0\0\124\0\1\0\64\0\0\0\0\0\0\0\0\0\0\0\64\0\40\0\1\0\0\0` +
	`\0\0\0\0\1\0\0\0\0\0\0\0\0\0\1\0\0\0\1\0\140\0\0\0\140\0\0\0\5\0\0\0\0\20\0\0\270\1\0\0\0\273\7\0\0\0\315\200`

// settings are the containers of one pod. settingsPod has the pod's own settings. Each container shows one setting
// from inside.
var settings = []said{
	{
		name:   "identity",
		script: `hostname; tail -n +8 /etc/hosts; cat /etc/resolv.conf`,
		want: "inside.sub.default.svc.cluster.local\n10.0.2.15\tinside.sub.default.svc.cluster.local\tinside\n\n" +
			"# Entries added by HostAliases.\n192.0.2.7\tdb\tdb.example\nsearch a.example b.example\nnameserver 192.0.2.1\noptions ndots:2 edns0",
	},
	{
		name: "users",
		script: `tr '\0' '\n' </proc/1/cmdline
			grep -E '^(Uid|CapEff|Groups):' /proc/1/status | tr -s ' \t' ' '
			ls /proc/1/root 2>&1 | sed 's/.*: //'
			kill -9 1
			kill 1
			echo alive
			id -G`,
		want: "bulkhead-holder\nUid: 65535 65535 65535 65535\nGroups: \nCapEff: 0000000000000000\nPermission denied\nalive\n0 1002",
	},
	{
		name:   "strict",
		yaml:   `securityContext: {runAsUser: 1000, runAsGroup: 1001, runAsNonRoot: true}`,
		script: `id -u; id -G`,
		want:   "1000\n1001 1002",
	},
	{
		name: "sees",
		yaml: `volumeMounts: [{name: v, mountPath: /v}]`,
		script: `until [ -e /v/pid ]; do sleep 0.1; done
			p=$(cat /v/pid)
			grep -q 87654 /proc/$p/cmdline && kill $p && echo seen`,
		want: "seen",
	},
	{
		name:   "seen",
		yaml:   `volumeMounts: [{name: v, mountPath: /v}]`,
		script: `sleep 87654 & echo $! >/v/pid.new; mv /v/pid.new /v/pid; wait $!; exit 7`,
	},
	{
		name:   "leaves",
		yaml:   `volumeMounts: [{name: v, mountPath: /v}]`,
		script: `sleep 4242 & exit 0`,
	},
	{
		name: "gone",
		yaml: `volumeMounts: [{name: v, mountPath: /v}]`,
		script: `until [ -e /v/pid ]; do sleep 0.1; done
			while pidof sleep >/dev/null && ps | grep -v grep | grep -q 4242; do sleep 0.1; done
			echo gone`,
		want: "gone",
	},
	{
		name: "privileged",
		yaml: `securityContext: {privileged: true}`,
		script: `grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status
			ls /dev/vda /dev/kmsg
			mkdir /tmp/m && mount -t tmpfs x /tmp/m && echo mounted
			mkdir /sys/fs/cgroup/own && echo made
			echo 77 >/proc/sys/vm/swappiness && cat /proc/sys/vm/swappiness
			head -c 4 /dev/vda | wc -c
			for at in 10239 10240; do dd if=/dev/vda bs=1M skip=$at count=1 2>/dev/null | wc -c; done`,
		want: "CapEff:\t000001ffffffffff\nNoNewPrivs:\t0\nSeccomp:\t0\n/dev/kmsg\n/dev/vda\nmounted\nmade\n77\n4\n1048576\n0",
	},
	{
		name: "plain",
		script: `ls /dev/vda 2>&1 | sed 's/.*: //'
			mkdir /sys/fs/cgroup/own 2>&1 | sed 's/.*: //'
			echo 1 2>/dev/null >/proc/sys/vm/swappiness || echo kept
			wc -c </proc/kcore
			grep -cE ' /proc/(kcore|sys) ' /proc/mounts
			mknod /tmp/vda b 254 0
			head -c 4 /tmp/vda 2>&1 | sed 's/.*: //'
			printf '` + exits7 + `' >/tmp/exits7 && chmod +x /tmp/exits7 && /tmp/exits7; echo $?`,
		want: "No such file or directory\nRead-only file system\nkept\n0\n2\nOperation not permitted\n7",
	},
	{
		name: "unmasked",
		yaml: `securityContext: {procMount: Unmasked}`,
		script: `grep -cE ' /proc/(kcore|sys) ' /proc/mounts
			test -w /proc/sys/vm/swappiness && echo writable`,
		want: "0\nwritable",
	},
	{
		name:   "profile",
		yaml:   `securityContext: {seccompProfile: {type: Localhost, localhostProfile: own/nomkdir.json}}`,
		script: `grep ^Seccomp: /proc/self/status; mkdir /tmp/x 2>&1 | sed 's/.*: //'; uname`,
		want:   "Seccomp:\t2\nNetwork is down\nLinux",
	},
	{
		name:   "sysctls",
		script: `cat /proc/sys/vm/max_map_count /proc/sys/kernel/shm_rmid_forced /proc/sys/fs/inotify/max_user_watches`,
		want:   "300000\n1\n4321",
	},
	{
		name:   "environment",
		yaml:   `securityContext: {runAsUser: 1000}`,
		script: `echo $HOSTNAME; ulimit -Sn; ulimit -Hn; ulimit -n 65535 && ulimit -u`,
		want:   "inside.sub.default.svc.cluster.local\n1024\n1048576\nunlimited",
	},
	{
		name: "etc",
		yaml: `volumeMounts: [{name: own, mountPath: /etc/resolv.conf, subPath: x}, {name: own, mountPath: /etc/hosts, subPath: x},
			{name: own, mountPath: /etc/hostname, subPath: x}], env: [{name: HOSTNAME, value: mine}]`,
		script: `cat /etc/resolv.conf /etc/hosts /etc/hostname; echo $HOSTNAME`,
		want:   "settingssettingssettingsmine",
	},
	{
		name:   "readonly",
		yaml:   `volumeMounts: [{name: own, mountPath: etc, readOnly: true}]`, // which means /etc
		script: `ls /etc; cat /etc/x`,
		want:   "x\nsettings",
	},
	{
		name:   "whole",
		yaml:   `resources: {limits: {memory: 32Mi}}`,
		script: `cat /sys/fs/cgroup/memory.oom.group; tail /dev/zero; echo child; sleep 2`,
		want:   "1",
	},
	{
		name:   "podlimits",
		script: `cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max`,
		want:   "201326592\n100000 100000",
	},
	{
		name: "hugepages",
		yaml: `resources: {limits: {hugepages-2Mi: 4Mi, memory: 32Mi}}, volumeMounts: [{name: huge, mountPath: /huge}]`,
		script: `cat /sys/fs/cgroup/hugetlb.2MB.max
			grep -E '^HugePages_Total' /proc/meminfo | tr -s ' '
			fallocate -l 2097152 /huge/x && cat /sys/fs/cgroup/hugetlb.2MB.current`,
		want: "4194304\nHugePages_Total: 2\n2097152",
	},
	{
		name: "nohugepages",
		yaml: `volumeMounts: [{name: huge, mountPath: /huge}]`,
		script: `cat /sys/fs/cgroup/hugetlb.2MB.max
			fallocate -l 2097152 /huge/y 2>/dev/null || echo none`,
		want: "0\nnone",
	},
	{
		name: "layer",
		yaml: `resources: {limits: {ephemeral-storage: 20Mi}}, volumeMounts: [{name: v, mountPath: /v}]`,
		script: `head -c 10000000 /dev/zero >/tmp/fits && echo fits
			dd if=/dev/zero of=/tmp/big bs=1M count=30 2>&1 | grep -cE 'quota|No space'
			rm /tmp/big
			mkdir /etc/made && mv /etc/passwd /etc/made && echo moved
			head -c 30000000 /dev/zero >/v/big && echo elsewhere
			rm /v/big
			touch /v/layered`,
		want: "fits\n1\nmoved\nelsewhere",
	},
	{
		name: "storage",
		yaml: `resources: {limits: {ephemeral-storage: 80Mi}}, volumeMounts: [{name: v, mountPath: /v}]`,
		script: `until [ -e /v/layered ]; do sleep 0.1; done
			df -m / | awk 'NR==2{print ($4 <= 100)}'
			dd if=/dev/zero of=/v/all bs=1M count=120 2>&1 | grep -c 'No space left'
			rm /v/all`,
		want: "1\n1",
	},
}

const settingsPod = `apiVersion: v1
kind: Pod
metadata: {name: settings}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  hostname: inside
  subdomain: sub
  setHostnameAsFQDN: true
  hostUsers: false
  shareProcessNamespace: true
  hostAliases: [{ip: 192.0.2.7, hostnames: [db, db.example]}]
  dnsPolicy: None
  dnsConfig: {nameservers: [192.0.2.1], searches: [a.example, b.example], options: [{name: ndots, value: "2"}, {name: edns0}]}
  resources: {limits: {cpu: 1, memory: 192Mi}}
  securityContext:
    supplementalGroups: [1002]
    supplementalGroupsPolicy: Strict
    sysctls:
    - {name: vm.max_map_count, value: "300000"}
    - {name: kernel.shm_rmid_forced, value: "1"}
    - {name: fs.inotify.max_user_watches, value: "4321"}
  volumes:
  - {name: v, emptyDir: {}}
  - {name: huge, emptyDir: {medium: HugePages}}
  - {name: own, downwardAPI: {items: [{path: x, fieldRef: {fieldPath: metadata.name}}]}}
  containers:
`

// TestSettings shows in real VMs what a pod's settings do.
func TestSettings(t *testing.T) {
	t.Parallel()
	w := newForkingWorld(t)
	t.Run("settings", func(t *testing.T) { testSettings(t, w) })
	t.Run("resize", func(t *testing.T) { testResize(t, w) })
}

func testSettings(t *testing.T, w *world) {
	profiles := filepath.Join(w.roots().Seccomp(), "own")
	if err := os.MkdirAll(profiles, 0o755); err != nil {
		t.Fatal(err)
	}
	const profile = `{
  "defaultAction": "SCMP_ACT_ALLOW",
  "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 100}]
}`
	if err := os.WriteFile(filepath.Join(profiles, "nomkdir.json"), []byte(profile), 0o644); err != nil {
		t.Fatal(err)
	}
	testSaid(t, w, "settings", settingsPod, settings, map[string]string{"seen": "7 Error", "whole": "137 OOMKilled"})
}

// testSaid runs a pod with these containers, and compares their output and their ends with the expected ones.
func testSaid(t *testing.T, w *world, name, head string, containers []said, ends map[string]string) {
	t.Helper()
	var y strings.Builder
	y.WriteString(head)
	for _, c := range containers {
		script, err := json.Marshal(c.script)
		if err != nil {
			t.Fatal(err)
		}
		fields := []string{"name: " + c.name, "image: " + image, "command: [sh, -c, " + string(script) + "]"}
		if c.yaml != "" {
			fields = append(fields, c.yaml)
		}
		y.WriteString("  - {" + strings.Join(fields, ", ") + "}\n")
	}
	w.must(t, y.String(), "run", "-d", "-q", "-")
	w.run(t, "", "wait", name)
	states := map[string]string{}
	for _, c := range w.inspect(t, name).Status.ContainerStatuses {
		if c.State.Terminated != nil {
			states[c.Name] = fmt.Sprint(c.State.Terminated.ExitCode, " ", c.State.Terminated.Reason)
		}
	}
	for _, c := range containers {
		if got := strings.TrimSuffix(w.must(t, "", "logs", "-c", c.name, name), "\n"); got != c.want {
			t.Errorf("%s: %s", c.name, cmp.Diff(c.want, got))
		}
		end := ends[c.name]
		if end == "" {
			end = "0 Completed"
		}
		if states[c.name] != end {
			t.Errorf("%s: ended with %q, want %q", c.name, states[c.name], end)
		}
	}
	w.must(t, "", "rm", name)
}
