package cli

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const replicas = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: many}
spec:
  replicas: 2
  selector: {matchLabels: {app: many}}
  template:
    metadata: {labels: {app: many}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: c
        image: localhost/busybox:test
        command: [sh, -c, "trap 'echo hup' HUP; echo up; while true; do sleep 0.1; done"]
        readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1}
`

// TestUse uses an image and a workload like users of podman and kubectl.
func TestUse(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	t.Parallel()
	u := newUser(t, nil, noForks)
	u.shareTemplates()
	u.loadBusybox()
	t.Run("image", u.runsImages)
	t.Run("workload", u.usesWorkload)
	if out := u.must("", "ps", "-q"); out != "" {
		t.Errorf("pods are left: %q", out)
	}
}

func (u *user) runsImages(t *testing.T) {
	id := u.must("", "image", "ls", "-o", "jsonpath={.items[0].id}")[:12]
	for _, tc := range []struct {
		name, stdin, out string
		args             []string
		code             int
	}{
		{name: "arguments as they are", args: []string{busybox, "echo", "-n", "$(HOME) $$"}, out: "$(HOME) $$"},
		{
			name: "flags",
			args: []string{"-e", "A=$b", "-u", "5:6", "-w", "/tmp", busybox, "sh", "-c", "echo $A $(id -u):$(id -g) $PWD"},
			out:  "$b 5:6 /tmp\n",
		},
		{name: "an entrypoint", args: []string{"--entrypoint", `["sh","-c"]`, busybox, "exit 4"}, code: 4},
		{name: "stdin", stdin: "typed\n", args: []string{"-i", busybox, "sh", "-c", "echo begun; cat; exit 3"}, out: "begun\ntyped\n", code: 3},
		{
			name: "podman's flags",
			args: []string{
				"--read-only", "--tmpfs", "/t:exec", "--cap-drop", "all", "--hostname", "web.example.org", "--init", "--memory", "6m",
				busybox, "--", "sh", "-c",
				"touch /x 2>/dev/null || touch /run/x /tmp/x /t/x && hostname && grep CapEff /proc/self/status && cut -c-15 /proc/1/cmdline",
			},
			out: "web.example.org\nCapEff:\t0000000000000000\nbulkhead-holder\n",
		},
		{
			name: "a user's name, and limits",
			args: []string{"-u", "nobody:daemon", "--ulimit", "nofile=77:88", busybox, "sh", "-c", "echo $(id -u) $(id -g) $(ulimit -n)"},
			out:  "65534 1 77\n",
		},
		{name: "an id", args: []string{id, "echo", "found"}, out: "found\n"},
		{name: "too long", args: []string{"--timeout", "1", "--stop-timeout", "1", busybox, "sleep", "1000"}, code: 255},
		{name: "a terminal that is none", args: []string{"-it", busybox, "sh"}, code: 125},
		{name: "no such image", args: []string{"--pull", "never", "localhost/nosuch:1"}, code: 125},
	} {
		out, stderr, code := u.run(tc.stdin, append([]string{"run", "-q", "--rm"}, tc.args...)...)
		if out != tc.out && out != tc.out+"\n" || code != tc.code {
			t.Errorf("%s: exit code %d, %q, %q", tc.name, code, out, stderr)
		}
	}
	u.waitsForFailures(t)
	u.must("", "run", "-dq", "--name", "sleeper", "--memory", "64m", busybox, "sleep", "1000")
	if out := u.must("", "inspect", "sleeper", "-o", "jsonpath={.spec.containers[0].resources.limits.memory}"); out != "64Mi" {
		t.Errorf("the limit is %q", out)
	}
	out := u.must("", "exec", "-u", "nobody", "-e", "B=2", "-w", "/", "sleeper", "--", "sh", "-c", "id -un; echo $B; pwd")
	if out != "nobody\n2\n/\n" {
		t.Errorf("exec: %q", out)
	}
	u.refused(t, []string{"exec", "-u", "nosuch", "sleeper", "true"}, "nosuch")
	u.refused(t, []string{"exec", "-w", "tmp", "sleeper", "true"}, "not absolute")
	if out := u.must("", "restart", "-t", "0", "sleeper"); out != "sleeper\n" {
		t.Errorf("restart: %q", out)
	}
	u.must("", "wait", "--for", "condition=Ready", "sleeper")
	if out := u.must("", "describe", "sleeper"); !strings.Contains(out, "Running since") || !strings.Contains(out, "memory=64Mi") {
		t.Errorf("describe: %s", out)
	}
	u.must("", "rm", "-f", "sleeper")
}

// waitsForFailures: run --wait reports pods that fail after their start.
func (u *user) waitsForFailures(t *testing.T) {
	for _, tc := range []struct {
		name, restart, script, want string
		code                        int
	}{
		{"once", "no", "exit 7", "it has ended with code 7", 7},
		{"again", "always", "exit 6", "with code 6 the last time", 6},
		{"well", "no", "true", "", 0},
		{"gone", "no", "exit 7", "it has ended with code 7", 7},
		{"gone-well", "no", "true", "", 0},
	} {
		gone := strings.HasPrefix(tc.name, "gone") // perhaps before the command waits for it
		args := []string{"run", "-dq", "--wait", "--rm=" + strconv.FormatBool(gone), "--restart", tc.restart, "--name", tc.name}
		_, stderr, code := u.run("", append(args, busybox, "sh", "-c", tc.script)...)
		if code != tc.code || !strings.Contains(stderr, tc.want) {
			t.Errorf("%s: exit code %d, %q", tc.name, code, stderr)
		}
		if !gone {
			u.must("", "rm", "-f", tc.name)
		}
	}
}

func (u *user) usesWorkload(t *testing.T) {
	file := write(t, replicas)
	service := write(t, "{apiVersion: v1, kind: Service, metadata: {name: many}, spec: {ports: [{port: 80}]}}\n---"+replicas)
	if _, stderr, code := u.run("", "run", "-dq", service); code == 0 || !strings.Contains(stderr, "Service") {
		t.Errorf("a Service: exit code %d, %q", code, stderr)
	}
	if out := u.must("", "run", "-dq", "--wait", "--ignore-unsupported", service); out != "many-0\nmany-1\n" {
		t.Errorf("run: %q", out)
	}
	if out := u.must("", "ps", "-l", "app=many", "-o", "jsonpath={.items[*].ready}"); out != "1 1" {
		t.Errorf("not ready after run --wait: %q", out)
	}
	for _, args := range [][]string{{"ps", "-q", "-l", "app!=many"}, {"ps", "-q", "-n", "other"}} {
		if out := u.must("", args...); out != "" {
			t.Errorf("%v: %q", args, out)
		}
	}
	u.refused(t, []string{"ps", "-l", "a b"}, "selector")
	for _, args := range [][]string{{"logs", "deployment/many"}, {"logs", "-l", "app=many"}} {
		if out := u.must("", args...); out != "many-0/c | up\nmany-1/c | up\n" {
			t.Errorf("%v: %q", args, out)
		}
	}
	u.refused(t, []string{"logs", "statefulset/many"}, "not found")
	u.refused(t, []string{"rm", "-f", "many"}, `"many": not found`)
	u.must("", "kill", "-s", "HUP", "many-0")
	hup := u.start(t, "logs", "-f", "many-0")
	hup.expect(t, "hup")
	u.must("", "wait", "--for", "jsonpath={.status.phase}=Running", "-l", "app=many")
	_, stderr, code := u.run("", "wait", "--for", "condition=Ready=False", "--timeout", "200ms", "many-0")
	if code == 0 || !strings.Contains(stderr, "timed out") {
		t.Errorf("a condition that is not met: exit code %d, %q", code, stderr)
	}
	watch := u.start(t, "ps", "-w")
	watch.expect(t, "many-1")
	if out := u.must("", "stop", "many-1"); out != "many-1\n" {
		t.Errorf("stop: %q", out)
	}
	u.refused(t, []string{"wait", "--for", "condition=Ready", "many-1"}, "has ended")
	if out := u.must("", "rm", "-f", file); out != "many-0\nmany-1\n" {
		t.Errorf("rm of a file: %q", out)
	}
	watch.expect(t, "Removed")
	watch.signal(t, syscall.SIGTERM, 0)
	u.must("", "wait", "--for", "delete", "many-0")
}
