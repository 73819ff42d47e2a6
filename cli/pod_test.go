package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/testimage"
)

// user runs bin/bulkhead as somebody, with directories of their own.
type user struct {
	t      *testing.T
	prefix []string // what changes the user
	env    []string
	dir    string
}

// run runs a command and returns what it printed and its exit code.
func (u *user) run(stdin string, args ...string) (stdout, stderr string, code int) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), 90*time.Second)
	defer cancel()
	args = append(append(append([]string{}, u.prefix...), filepath.Join(os.Getenv("BULKHEAD_LIBEXEC"), "bulkhead")), args...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var out, err bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = "/", u.env, strings.NewReader(stdin), &out, &err
	if e := cmd.Run(); e != nil && cmd.ProcessState == nil {
		u.t.Fatal(e)
	}
	return out.String(), err.String(), cmd.ProcessState.ExitCode()
}

// must runs a command that has to succeed.
func (u *user) must(stdin string, args ...string) string {
	u.t.Helper()
	out, stderr, code := u.run(stdin, args...)
	if code != 0 {
		u.t.Fatalf("bulkhead %s: exit code %d: %s%s", strings.Join(args, " "), code, out, stderr)
	}
	return out
}

const pods = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: localhost/busybox:test
    command: [sh, -c, "mkdir /www && echo page > /www/index.html && exec httpd -f -p 80 -h /www"]
  - name: side
    image: localhost/busybox:test
    command: [sh, -c, "echo from the side; exec sleep 1000"]
`

func once(name, script string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {restartPolicy: Never, containers: [{name: c, image: "localhost/busybox:test", command: [sh, -c, %q]}]}}`, name, script)
}

// TestPod walks pods through every layer by the command line, as root and as an
// ordinary user without any capability.
func TestPod(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	for name, prefix := range map[string][]string{
		"root":     nil,
		"ordinary": {"setpriv", "--reuid=1717", "--regid=1717", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"},
	} {
		t.Run(name, func(t *testing.T) { testPods(t, prefix) })
	}
}

func testPods(t *testing.T, prefix []string) {
	dir, err := os.MkdirTemp("/tmp", "bh") // short: sockets lie beneath
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if prefix != nil {
		if err := os.Chown(dir, 1717, 1717); err != nil {
			t.Fatal(err)
		}
	}
	u := &user{t: t, prefix: prefix, dir: dir, env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "BULKHEAD_DATA=" + dir + "/data", "BULKHEAD_STATE=" + dir + "/state",
		"BULKHEAD_LIBEXEC=" + os.Getenv("BULKHEAD_LIBEXEC"), "BULKHEAD_GUEST=" + os.Getenv("BULKHEAD_GUEST"),
	}}
	layout := filepath.Join(dir, "image")
	if out, err := exec.Command("cp", "-r", testimage.Busybox(t), layout).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("chmod", "-R", "a+rX", layout).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	u.must("", "image", "load", "oci:"+layout, "localhost/busybox:test")
	t.Cleanup(func() { u.nothingLeft() })

	t.Run("exit codes and output", u.exitCodes)
	t.Run("a detached pod", u.detached)
	t.Run("errors", u.errors)
}

func (u *user) exitCodes(t *testing.T) {
	for _, tc := range []struct {
		name, script, out, err string
		code                   int
	}{
		{"success", "echo out; echo err >&2", "out\n", "err\n", 0},
		{"failure", "exit 7", "", "", 7},
		{"name", "hostname", "name\n", "", 0},
	} {
		out, stderr, code := u.run(once(tc.name, tc.script), "run", "--rm", "--quiet", "-")
		if out != tc.out || !strings.Contains(stderr, tc.err) || code != tc.code {
			t.Errorf("%s: %q, %q, exit code %d", tc.name, out, stderr, code)
		}
	}
}

func (u *user) detached(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	publish := fmt.Sprintf("%d:80", port)
	if _, stderr, code := u.run(pods, "run", "-d", "--quiet", "-p", publish, "-"); code == 0 || !strings.Contains(stderr, "in use") {
		t.Errorf("a port in use: exit code %d, %q", code, stderr)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	u.must(pods, "run", "-d", "--quiet", "-p", publish, "-")
	if out := u.must("", "ps"); !strings.Contains(out, "web") || !strings.Contains(out, "Running") {
		t.Errorf("ps: %s", out)
	}
	if page, err := fetchPage(port); err != nil || page != "page\n" {
		t.Errorf("the published port: %q, %v", page, err)
	}
	out, _, code := u.run("typed", "exec", "-i", "web", "--", "sh", "-c", "cat; exit 5")
	if out != "typed" || code != 5 {
		t.Errorf("exec: %q, exit code %d", out, code)
	}
	if out := u.must("", "logs", "-c", "side", "web"); out != "from the side\n" {
		t.Errorf("logs: %q", out)
	}
	u.must("", "pause", "web")
	if out := u.must("", "ps"); !strings.Contains(out, "Paused") {
		t.Errorf("ps of a paused pod: %s", out)
	}
	u.must("", "resume", "web")
	if _, stderr, code := u.run("", "rm", "web"); code == 0 || !strings.Contains(stderr, "--force") {
		t.Errorf("rm of a running pod: exit code %d, %q", code, stderr)
	}
	u.must("", "stop", "web")
	u.must("", "rm", "web")
}

// fetchPage reads the pod's page; the server in it may still be starting.
func fetchPage(port int) (string, error) {
	deadline := time.Now().Add(10 * time.Second)
	for {
		res, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err == nil {
			defer res.Body.Close()
			b, err := io.ReadAll(res.Body)
			return string(b), err
		}
		if time.Now().After(deadline) {
			return "", err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (u *user) errors(t *testing.T) {
	for _, tc := range []struct {
		name, yaml, want string
	}{
		{"not YAML", "a: [", "-:2: not YAML"},
		{"unknown field", strings.Replace(once("x", "true"), "restartPolicy", "restartPolcy", 1), "restartPolcy"},
		{"unknown image", strings.Replace(once("x", "true"), "busybox:test", "nosuch:test", 1), "localhost/nosuch:test"},
	} {
		_, stderr, code := u.run(tc.yaml, "run", "--rm", "--quiet", "-")
		if code != 125 || !strings.Contains(stderr, tc.want) {
			t.Errorf("%s: exit code %d, %q", tc.name, code, stderr)
		}
	}
	if _, stderr, code := u.run("", "logs", "nosuch"); code != 1 || !strings.Contains(stderr, "not found") {
		t.Errorf("an unknown pod: exit code %d, %q", code, stderr)
	}
	if out := u.must("", "ps", "-q"); out != "" {
		t.Errorf("pods are left: %q", out)
	}
}

// nothingLeft ends the supervisor and looks for processes that name the
// user's directories.
func (u *user) nothingLeft() {
	client := exec.Command("curl", "-s", "--max-time", "20", "-X", "POST", "--unix-socket", u.dir+"/state/run/supervisor.sock", "http://supervisor/v1/shutdown")
	if out, err := client.CombinedOutput(); err != nil {
		u.t.Errorf("end the supervisor: %v: %s", err, out)
	}
	deadline := time.Now().Add(15 * time.Second)
	for {
		left := processes(u.dir)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			u.t.Errorf("left running: %v", left)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func processes(dir string) (found []string) {
	list, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range list {
		cmdline, err1 := os.ReadFile(p + "/cmdline")
		env, err2 := os.ReadFile(p + "/environ")
		if err1 == nil && err2 == nil && (bytes.Contains(cmdline, []byte(dir)) || bytes.Contains(env, []byte(dir+"/state"))) {
			found = append(found, filepath.Base(p)+" "+string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		}
	}
	return found
}
