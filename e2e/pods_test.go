package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// said is a container with a script that prints what it finds, and the expected output.
type said struct {
	name, yaml, script, want string
}

// The containers of one pod. Each shows one part of the Pod API.
var honoured = []said{
	{
		name: "env",
		yaml: `env: [{name: A, value: one}, {name: B, value: "$(A)-two"}, {name: C, value: "$$(A)"}, {name: D, value: $(NONE)},
      {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]`,
		script: `echo "$A $B $C $D $POD"`,
		want:   "one one-two $(A) $(NONE) honour",
	},
	{
		name:   "args",
		yaml:   `env: [{name: A, value: one}], args: ["$(A)", "$$(A)", "two words"]`,
		script: `printf '%s\n' "$@"`,
		want:   "$(A)\ntwo words",
	},
	{
		name:   "dir",
		yaml:   `workingDir: /tmp/made`,
		script: `pwd`,
		want:   "/tmp/made",
	},
	{
		name:   "user",
		yaml:   `securityContext: {runAsUser: 1000, runAsGroup: 1001}`,
		script: `id -u; id -g; id -G`,
		want:   "1000\n1001\n1001 1002 2000",
	},
	{
		name:   "root",
		script: `id -u; grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status`,
		want:   "0\nCapEff:\t00000000a80425fb\nNoNewPrivs:\t0\nSeccomp:\t2",
	},
	{
		name: "confined",
		yaml: `securityContext: {capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]},
      allowPrivilegeEscalation: false, readOnlyRootFilesystem: true}`,
		script: `grep -E '^(CapEff|CapBnd|NoNewPrivs):' /proc/self/status
			touch /x 2>&1 | sed 's/.*: //'
			touch /dev/shm/x && echo shm`,
		want: "CapEff:\t0000000000000400\nCapBnd:\t0000000000000400\nNoNewPrivs:\t1\nRead-only file system\nshm",
	},
	{
		name:   "unconfined",
		yaml:   `securityContext: {seccompProfile: {type: Unconfined}}`,
		script: `grep ^Seccomp: /proc/self/status`,
		want:   "Seccomp:\t0",
	},
	{
		name:   "limits",
		yaml:   `resources: {limits: {cpu: 500m, memory: 48Mi}}`,
		script: `cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max`,
		want:   "50331648\n50000 100000",
	},
	{
		name: "volumes",
		yaml: `volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory},
      {name: disk, mountPath: /ro, readOnly: true}]`,
		script: `echo here >/disk/file
			df -m /memory | awk 'NR==2{print $2}'
			grep -c ' /memory tmpfs ' /proc/mounts
			touch /ro/x 2>&1 | sed 's/.*: //'
			hostname >/disk/done`,
		want: "8\n1\nRead-only file system",
	},
	{
		name: "shared",
		yaml: `volumeMounts: [{name: disk, mountPath: /elsewhere}]`,
		script: `until [ -e /elsewhere/done ]; do sleep 0.1; done
			cat /elsewhere/file /elsewhere/done
			hostname`,
		want: "here\nhonour\nhonour",
	},
	{
		name: "server",
		yaml: `volumeMounts: [{name: disk, mountPath: /disk}]`,
		script: `echo page >/tmp/index.html
			httpd -p 8080 -h /tmp
			until [ -e /disk/served ]; do sleep 0.1; done`,
	},
	{
		name: "client",
		yaml: `volumeMounts: [{name: disk, mountPath: /disk}]`,
		script: `until wget -q -O - http://127.0.0.1:8080/; do sleep 0.1; done 2>/dev/null
			touch /disk/served
			cat /proc/sys/net/ipv4/ip_unprivileged_port_start`,
		want: "page\n79",
	},
	{name: "fails", script: `exit 3`},
	{name: "missing", yaml: `command: [/no/such/command]`},
	{name: "forbidden", yaml: `command: [/etc/passwd]`},
	{name: "oom", yaml: `resources: {limits: {memory: 16Mi}}`, script: `tail /dev/zero`},
}

// ends has the exit codes and reasons other than 0 and Completed.
var ends = map[string]string{
	"fails": "3 Error", "missing": "128 StartError", "forbidden": "128 StartError", "oom": "137 OOMKilled",
}

// TestPods shows in real VMs what the supported parts of the Pod API do.
func TestPods(t *testing.T) {
	t.Parallel()
	w := newForkingWorld(t)
	t.Run("honoured", func(t *testing.T) { testHonoured(t, w) })
	t.Run("restarts", func(t *testing.T) { testRestarts(t, w) })
	t.Run("probes", func(t *testing.T) { testProbes(t, w) })
	t.Run("stops", func(t *testing.T) { testStops(t, w) })
	t.Run("halted", func(t *testing.T) { testHalted(t, w) })
	t.Run("order", func(t *testing.T) { testOrder(t, w) })
	t.Run("ends", func(t *testing.T) { testEnds(t, w) })
	t.Run("initial failure", func(t *testing.T) { testInitialFailure(t, w) })
	t.Run("deadline", func(t *testing.T) { testDeadline(t, w) })
	t.Run("replaced", func(t *testing.T) { testReplaced(t, w) })
	t.Run("debug", func(t *testing.T) { testDebug(t, w) })
	w.shutdown(t)
	w.warm = "off" // every VM belongs to a pod
	t.Run("at once", func(t *testing.T) { testAtOnce(t, w) })
}

func testHonoured(t *testing.T, w *world) {
	var y strings.Builder
	y.WriteString(`apiVersion: v1
kind: Pod
metadata: {name: honour}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  securityContext: {supplementalGroups: [1002], sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "79"}]}
  volumes: [{name: disk, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory, sizeLimit: 8Mi}}]
  containers:
`)
	for _, c := range honoured {
		fields := []string{"name: " + c.name, "image: " + image}
		if c.script != "" {
			script, err := json.Marshal(c.script)
			if err != nil {
				t.Fatal(err)
			}
			fields = append(fields, "command: [sh, -c, "+string(script)+"]")
		}
		if c.yaml != "" {
			fields = append(fields, c.yaml)
		}
		y.WriteString("  - {" + strings.Join(fields, ", ") + "}\n")
	}
	w.must(t, y.String(), "run", "-d", "-q", "-")
	if code := w.run(t, "", "wait", "honour").ProcessState.ExitCode(); code != 3 {
		t.Errorf("wait: exit code %d, want the code of the first failed container", code)
	}
	states := map[string]string{}
	for _, c := range w.inspect(t, "honour").Status.ContainerStatuses {
		states[c.Name] = fmt.Sprint(c.State.Terminated.ExitCode, " ", c.State.Terminated.Reason)
	}
	for _, c := range honoured {
		if got := strings.TrimSuffix(w.must(t, "", "logs", "-c", c.name, "honour"), "\n"); got != c.want {
			t.Errorf("%s: %s", c.name, cmp.Diff(c.want, got))
		}
		end := ends[c.name]
		if end == "" {
			end = "0 Completed"
		}
		if states[c.name] != end {
			t.Errorf("%s: ended with %s, want %s", c.name, states[c.name], end)
		}
	}
	w.must(t, "", "rm", "honour")
}

func testRestarts(t *testing.T, w *world) {
	w.must(t, `{apiVersion: v1, kind: Pod, metadata: {name: restarts}, spec: {restartPolicy: OnFailure, volumes: [{name: v, emptyDir: {}}],
  containers: [{name: c, image: "`+image+`", command: [sh, -c, "echo again >>/v/times; [ $(wc -l </v/times) = 2 ]"],
    volumeMounts: [{name: v, mountPath: /v}]}]}}`,
		"run", "-d", "-q", "-")
	w.must(t, "", "wait", "restarts")
	c := w.inspect(t, "restarts").Status.ContainerStatuses[0]
	if c.RestartCount != 1 || c.LastTerminationState.Terminated == nil || c.LastTerminationState.Terminated.ExitCode != 1 {
		t.Errorf("a container that failed once: %+v", c)
	}
}

func testStops(t *testing.T, w *world) {
	for _, tc := range []struct {
		name, script, log string
		code              int32
	}{
		{"obeys", `trap "echo bye; exit 4" TERM; echo up; while :; do sleep 0.05; done`, "up\nbye\n", 4},
		{"ignores", `trap "" TERM; echo up; while :; do sleep 0.05; done`, "up\n", 137},
	} {
		w.must(t, pod(tc.name, "Always", tc.script), "run", "-d", "-q", "-")
		for !strings.Contains(w.must(t, "", "logs", tc.name), "up") {
			time.Sleep(50 * time.Millisecond)
		}
		w.must(t, "", "stop", tc.name)
		if log := w.must(t, "", "logs", tc.name); log != tc.log {
			t.Errorf("%s: log %q, want %q", tc.name, log, tc.log)
		}
		c := w.inspect(t, tc.name).Status.ContainerStatuses[0]
		if c.State.Terminated == nil || c.State.Terminated.ExitCode != tc.code || c.RestartCount != 0 {
			t.Errorf("%s: %+v", tc.name, c)
		}
	}
}

// testAtOnce: concurrent commands on one pod agree on the result. A request with several pods is done completely or
// not at all.
func testAtOnce(t *testing.T, w *world) {
	w.must(t, pod("one", "Never", "exit 0"), "run", "-q", "-")
	began := time.Now()
	c := w.run(t, pod("two", "Never", "exit 0")+"\n---\n"+pod("one", "Never", "exit 0"), "run", "-d", "-q", "-")
	if c.ProcessState.ExitCode() == 0 || !strings.Contains(c.err.String(), "exists") || time.Since(began) > testdeadline.For(20*time.Second) {
		t.Errorf("a second pod of a name, after %v: %v", time.Since(began), c)
	}
	if ps := w.must(t, "", "ps"); strings.Contains(ps, "two") {
		t.Errorf("of a request that failed is left:\n%s", ps)
	}
	starts := []*command{w.start(t, "", "start", "one"), w.start(t, "", "start", "one"), w.start(t, "", "start", "one")}
	started := 0
	for _, c := range starts {
		if c.wait(t) == 0 {
			started++
		} else if !strings.Contains(c.err.String(), "is already running") {
			t.Error(c)
		}
	}
	// A start after the pod has ended starts it again.
	if started == 0 {
		t.Error("none of three starts had an effect")
	}
	ends := []*command{w.start(t, "", "start", "one"), w.start(t, "", "rm", "-f", "one"), w.start(t, "", "rm", "-f", "one")}
	for _, c := range ends {
		c.wait(t)
	}
	w.run(t, "", "rm", "-f", "one")
	for _, p := range w.processes() {
		if p.qemu() != "" || p.shim() != "" {
			t.Errorf("left of a pod that was started and removed at once: %s", p)
		}
	}
}

// inspect returns the Pod that the command line shows.
func (w *world) inspect(t *testing.T, name string) corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	out := w.must(t, "", "inspect", "-o", "json", name)
	if err := json.Unmarshal([]byte(out), &pod); err != nil {
		t.Fatalf("inspect: %v: %s", err, out)
	}
	return pod
}
