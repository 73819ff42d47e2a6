package cli

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// badInput is a command that must fail with an exit code and one line. The line must say what is wrong and what to
// do.
type badInput struct {
	name  string
	stdin string
	args  []string // run --rm - without any
	code  int
	want  []string
}

// check runs the command, and checks its output and what it left behind.
func (b badInput) check(t *testing.T, u *user) {
	t.Helper()
	args := b.args
	if args == nil {
		args = []string{"run", "--rm", "--quiet", "-"}
	}
	out, stderr, code := u.run(b.stdin, args...)
	if code != b.code || out != "" {
		t.Errorf("exit code %d, want %d; stdout %q", code, b.code, out)
	}
	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	if len(lines) > 1 && strings.HasPrefix(lines[1], "(run it again with --detail") {
		lines = lines[:1]
	}
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "bulkhead: ") {
		t.Errorf("not one line: %q", stderr)
	}
	for _, want := range b.want {
		if !strings.Contains(lines[0], want) {
			t.Errorf("%q does not contain %q", lines[0], want)
		}
	}
	u.nothingOf(t)
}

// nothingOf searches for remains of a failed command: pods, sandboxes, processes, unfinished images.
func (u *user) nothingOf(t *testing.T) {
	t.Helper()
	anyID := strings.Repeat("?", 64)
	for _, pattern := range []string{
		"data/pods/*", "data/sandboxes/*", "data/names/run/*", "data/images/tmp/*", "state/run/" + anyID, "state/p/*",
	} {
		left, err := filepath.Glob(filepath.Join(u.dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		if len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	for _, p := range processes(u.dir) {
		if strings.Contains(p, "qemu-system") || strings.Contains(p, "bulkhead-shim") {
			t.Errorf("left running: %s", p)
		}
	}
}

// manifest returns a pod of one container with additional fields.
func manifest(image, command, more string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: bad}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: %s
    command: %s
%s`, image, command, more)
}

const busybox = "localhost/busybox:test"

// noForks disables forks, so that every VM is a clone.
const noForks = "BULKHEAD_WARM=off"

func TestBadInput(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	t.Parallel()
	u := newUser(t, nil, noForks)
	u.shareTemplates()
	u.loadBusybox()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	text := filepath.Join(u.dir, "text")
	if err := os.WriteFile(text, []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	const sleep, yes = "[sleep, '1000']", "['true']"
	for _, tc := range []badInput{
		{name: "not YAML", stdin: manifest(busybox, yes, "    env: [{name: A\n"), code: 125, want: []string{"-:10: not YAML"}},
		{name: "empty", stdin: "# nothing\n", code: 125, want: []string{"no pod in it"}},
		{
			name:  "another kind",
			stdin: "apiVersion: batch/v1\nkind: CronJob\n",
			code:  125,
			want:  []string{"-:2:", "CronJob", "make a Job of its spec.jobTemplate.spec"},
		},
		{
			name:  "unknown fields",
			stdin: manifest(busybox, yes, "    comand: [x]\n    imag: y\n"),
			code:  125,
			want:  []string{"-:10: spec.containers[0].comand: unknown field", "-:11: spec.containers[0].imag: unknown field"},
		},
		{
			name:  "a field that is not honoured",
			stdin: manifest(busybox, yes, "  volumes: [{name: v, nfs: {server: s, path: /}}]\n"),
			code:  125,
			want:  []string{"-:10: spec.volumes[0].nfs", "is not honoured"},
		},
		{
			name:  "an unknown capability",
			stdin: manifest(busybox, yes, "    securityContext: {capabilities: {add: [FLY]}}\n"),
			code:  125,
			want:  []string{"capabilities.add[0]", `"FLY" is not a capability`},
		},
		{name: "no file", args: []string{"run", "/no/such.yaml"}, code: 125, want: []string{"/no/such.yaml: no such file"}},
		{name: "no argument", args: []string{"run"}, code: 125, want: []string{"FILE or IMAGE is missing", "bulkhead run --help"}},
		{name: "unknown flag", args: []string{"ps", "--nosuch"}, code: 1, want: []string{"--nosuch", "bulkhead ps --help"}},
		{
			name: "unknown command",
			args: []string{"image", "nosuch"},
			code: 1,
			want: []string{`unknown command "nosuch"`, "bulkhead image --help"},
		},
		{
			name:  "unknown network",
			stdin: manifest(busybox, yes, ""),
			args:  []string{"run", "--network", "host", "-"},
			code:  125,
			want:  []string{`--network "host": use user or none`},
		},
		{
			name:  "unknown image",
			stdin: manifest("localhost/nosuch:test", yes, ""),
			code:  125,
			want:  []string{"localhost/nosuch:test", "bulkhead image load"},
		},
		{
			name:  "image by its policy never pulled",
			stdin: manifest("localhost/nosuch:test", yes, "    imagePullPolicy: Never\n"),
			code:  125,
			want:  []string{"localhost/nosuch:test", "Never"},
		},
		{name: "not an image's name", stdin: manifest("UPPER:CASE:x", yes, ""), code: 125, want: []string{"UPPER:CASE:x"}},
		{name: "not an archive", args: []string{"image", "load", "--quiet", "docker-archive:" + text}, code: 1, want: []string{text, "invalid"}},
		{
			name: "no layout",
			args: []string{"image", "load", "--quiet", "oci:/no/such", "x"},
			code: 1,
			want: []string{"oci:/no/such", "no such file"},
		},
		{name: "no file", args: []string{"image", "load", "--quiet", "nosuch.tar"}, code: 1, want: []string{"nosuch.tar", "no such file"}},
		{name: "no image", args: []string{"image", "load", "--quiet", text}, code: 1, want: []string{text, "invalid image", "tar"}},
		{
			name:  "more memory than the host has",
			stdin: manifest(busybox, yes, "    resources: {limits: {memory: 9Ti}}\n"),
			code:  125,
			want:  []string{"MiB of memory, the host has", "lower its limits"},
		},
		{
			name:  "more CPUs than the host has",
			stdin: manifest(busybox, yes, "    resources: {limits: {cpu: 500}}\n"),
			code:  125,
			want:  []string{"500 CPUs, the host has", "lower its limits"},
		},
		{
			name:  "a port in use",
			stdin: manifest(busybox, sleep, ""),
			args:  []string{"run", "--quiet", "-p", fmt.Sprintf("%d:80", port), "-"},
			code:  125,
			want:  []string{fmt.Sprintf("127.0.0.1:%d: port is in use", port), "choose another"},
		},
		{
			name:  "a port of the manifest in use",
			stdin: manifest(busybox, sleep, fmt.Sprintf("    ports: [{containerPort: 80, hostPort: %d}]\n", port)),
			code:  125,
			want:  []string{fmt.Sprintf("127.0.0.1:%d: port is in use", port)},
		},
		{
			name:  "not a port",
			stdin: manifest(busybox, yes, ""),
			args:  []string{"run", "-p", "http", "-"},
			code:  125,
			want:  []string{`port "http"`, "[[IP:]HOST:]POD"},
		},
		{
			name:  "a missing command",
			stdin: manifest(busybox, "[/no/such, x]", ""),
			code:  127,
			want:  []string{"container c", "`/no/such` not found", "check its command"},
		},
		{
			name:  "a command that is not a program",
			stdin: manifest(busybox, "[/etc/passwd]", ""),
			code:  126,
			want:  []string{"container c", "Permission denied", "check its command"},
		},
		{
			name:  "a directory for a command",
			stdin: manifest(busybox, "[/etc]", ""),
			code:  126,
			want:  []string{"container c", "check its command"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.check(t, u) })
	}
	t.Run("exec", func(t *testing.T) { testBadExec(t, u) })
}

// testBadExec: these commands fail and do not affect their pod.
func testBadExec(t *testing.T, u *user) {
	u.must(manifest(busybox, "[sleep, '1000']", ""), "run", "-d", "--quiet", "-")
	u.must(strings.Replace(manifest(busybox, "[sleep, '1000']", ""), "bad", "badly", 1), "run", "-d", "--quiet", "-")
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"exec", "bad", "nosuch"}, 127, "exec: nosuch: not found"},
		{[]string{"exec", "bad", "/etc/passwd"}, 126, "permission denied"},
		{[]string{"exec", "bad", "sh", "-c", "kill -9 $$"}, 137, ""},
		{[]string{"exec", "-c", "nosuch", "bad", "true"}, 125, `container "nosuch" of pod default/bad: not found: it has [c]`},
		{[]string{"exec", "-t", "bad", "sh"}, 125, "-t needs a terminal"},
		{[]string{"exec", "bad"}, 125, "COMMAND is missing"},
		{[]string{"exec", "nosuch", "true"}, 125, "bulkhead ps lists the pods"},
		{[]string{"exec", "ba", "true"}, 125, "ambiguous: it may be default/bad or default/badly"},
		{[]string{"exec", "badl", "true"}, 0, ""},
		{[]string{"rm", "bad"}, 1, "pod default/bad runs: stop it first, or use --force"},
		{[]string{"start", "bad"}, 1, "is already running"},
		{[]string{"logs", "-c", "nosuch", "bad"}, 1, "it has [c]"},
		{[]string{"ps", "-o", "xml"}, 1, "wide, name or jsonpath=TEMPLATE"},
	} {
		_, stderr, code := u.run("", tc.args...)
		if code != tc.code || !strings.Contains(stderr, tc.want) || strings.Count(stderr, "\n") > 1 || tc.want == "" && stderr != "" {
			t.Errorf("%v: exit code %d, want %d; %q, want %q", tc.args, code, tc.code, stderr, tc.want)
		}
	}
	_, stderr, code := u.run(manifest(busybox, "['true']", ""), "run", "-d", "-")
	if code != 125 || !strings.Contains(stderr, "already exists: remove it first") {
		t.Errorf("a second pod of a name: exit code %d, %q", code, stderr)
	}
	u.must("", "rm", "-f", "--all")
	u.nothingOf(t)
}
