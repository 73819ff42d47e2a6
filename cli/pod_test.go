package cli

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

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
    ports: [{name: http, containerPort: 80}]
    volumeMounts: [{name: data, mountPath: /data}]
  - name: side
    image: localhost/busybox:test
    stdin: true
    command: [sh, -c, "echo from the side; while read word; do echo heard $word; done; exec sleep 1000"]
  volumes:
  - name: data
    emptyDir: {}
`

func once(name, script string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {restartPolicy: Never,
  containers: [{name: c, image: "localhost/busybox:test", command: [sh, -c, %q]}]}}`, name, script)
}

// TestPod runs pods through every layer with the command line, as root and as an ordinary user without any
// capability.
func TestPod(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	t.Parallel()
	for name, prefix := range map[string][]string{"root": nil, "ordinary": ordinary} {
		t.Run(name, func(t *testing.T) { testPods(t, prefix) })
	}
}

func testPods(t *testing.T, prefix []string) {
	u := newUser(t, prefix)
	u.loadBusybox()
	t.Run("exit codes and output", u.exitCodes)
	t.Run("volumes", u.lasting)
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
	u.formats(t)
	out, _, code := u.run("typed", "exec", "-i", "web", "--", "sh", "-c", "cat; exit 5")
	if out != "typed" || code != 5 {
		t.Errorf("exec: %q, exit code %d", out, code)
	}
	if out := u.must("", "logs", "-c", "side", "default/web"); out != "from the side\n" {
		t.Errorf("logs: %q", out)
	}
	u.copies(t)
	u.forwarded(t)
	u.attached(t)
	u.hungUp(t)
	if u.prefix == nil { // the same for all users
		u.shown(t)
		u.again(t)
	}
	u.must("", "pause", "web")
	if out := u.must("", "ps"); !strings.Contains(out, "Paused") {
		t.Errorf("ps of a paused pod: %s", out)
	}
	if out := u.must("", "stats", "--no-stream", "web"); !strings.Contains(out, "web  -") {
		t.Errorf("stats of a paused pod: %s", out)
	}
	u.refused(t, []string{"cp", "web:/etc", u.dir + "/paused"}, "is paused: resume it with bulkhead resume web")
	u.refused(t, []string{"exec", "web", "--", "true"}, "is paused: resume it with bulkhead resume web")
	u.must("", "resume", "web")
	if _, stderr, code := u.run("", "rm", "web"); code == 0 || !strings.Contains(stderr, "--force") {
		t.Errorf("rm of a running pod: exit code %d, %q", code, stderr)
	}
	u.must("", "stop", "web")
	u.refused(t, []string{"cp", "web:/etc", u.dir + "/ended"}, "has ended")
	if out := u.must("", "events", "web"); !strings.Contains(out, "Killing") {
		t.Errorf("events of an ended pod: %s", out)
	}
	u.must("", "rm", "web")
	u.pruned(t)
}

// fetchPage reads the pod's page. The server in the pod may still be starting.
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
