package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
)

// crictl is the CRI's client of a node.
type crictl struct {
	program, dir string
}

func (n *node) crictl(t *testing.T) crictl {
	t.Helper()
	c := crictl{testkube.Program(t, "crictl"), t.TempDir()}
	c.write(t, "crictl.yaml", "runtime-endpoint: unix://"+n.path("c.sock")+"\ntimeout: 60\n")
	return c
}

// write writes a file and returns its path.
func (c crictl) write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (c crictl) try(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Env = append(os.Environ(), "CRI_CONFIG_FILE="+filepath.Join(c.dir, "crictl.yaml"))
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("crictl %s: %w: %s", strings.Join(args, " "), err, &errs)
	}
	return string(out), err
}

// do runs a command that must succeed, and returns its output without white space around it.
func (c crictl) do(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.try(testdeadline.Context(t, time.Minute), args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// expect checks the output of a command.
func (c crictl) expect(t *testing.T, want string, args ...string) {
	t.Helper()
	if got := c.do(t, args...); !strings.Contains(got, want) {
		t.Errorf("crictl %s: got %q, want %q", strings.Join(args, " "), got, want)
	}
}

// container creates and starts a container with a shell script, and returns its id.
func (c crictl) container(t *testing.T, pod, podFile, name, script string) string {
	t.Helper()
	id := c.do(t, "create", "--no-pull", pod, c.write(t, name+".json", fmt.Sprintf(
		`{"metadata": {"name": %[1]q}, "image": {"image": %[2]q}, "command": ["/bin/sh", "-c", %[3]q], "log_path": "%[1]s.log", "linux": {}}`,
		name, image, script)), podFile)
	c.do(t, "start", id)
	return id
}

// pods plays the life of a pod of two containers in one VM, for every kind of sandbox that the version has.
func pods(t *testing.T, n *node) {
	t.Cleanup(func() { testnet.Run(t, "ip", "link", "del", "cni0") }) // CNI leaves it
	for _, handler := range n.handlers {
		t.Run(handler, func(t *testing.T) { n.pod(t, handler) })
	}
}

func (n *node) pod(t *testing.T, handler string) {
	c := n.crictl(t)
	logs := t.TempDir()
	podFile := c.write(t, "pod.json", fmt.Sprintf(`{"metadata": {"name": "pod", "namespace": "default", "uid": "1", "attempt": 1},
		"hostname": "inside", "log_directory": %q, "dns_config": {"servers": ["10.88.0.1"]},
		"linux": {"security_context": {"namespace_options": {"pid": 1}}}}`, logs))
	pod := c.do(t, "runp", "--runtime", handler, podFile)
	t.Cleanup(func() { // it is gone, unless the test fails
		_, _ = c.try(context.Background(), "rmp", "-f", "-a")
	})
	first := c.container(t, pod, podFile, "first", "echo page >/tmp/page; echo hello; echo oops >&2; exec httpd -f -p 127.0.0.1:80 -h /tmp")
	second := c.container(t, pod, podFile, "second", "trap 'exit 3' TERM; while :; do sleep 0.02; done")
	if got := running(t, "bulkhead-shim"); len(got) != 1 {
		t.Errorf("the pod of two containers has %d VMs: %v", len(got), got)
	}
	fetch := "until wget -qO- http://127.0.0.1/page; do sleep 0.02; done"
	c.expect(t, "page", "exec", "-s", second, "sh", "-c", fetch)
	c.expect(t, "inside", "exec", second, "hostname")
	c.expect(t, "nameserver 10.88.0.1", "exec", "-s", first, "cat", "/etc/resolv.conf")
	c.expect(t, "inet 10.88.", "exec", "-s", first, "ip", "-4", "addr", "show", "eth0")
	if _, err := c.try(testdeadline.Context(t, time.Minute), "exec", "-s", second, "sh", "-c", "exit 4"); err == nil ||
		!strings.Contains(err.Error(), "exited with 4") && !strings.Contains(err.Error(), "exit code 4") {
		t.Errorf("exec of exit 4: %v", err)
	}
	c.expect(t, "hello", "logs", first)
	c.expect(t, "second", "ps", "--pod", pod)
	c.expect(t, `"memory"`, "stats", "-o", "json", first)
	n.kill(t)
	n.start(t)
	ctx := testdeadline.Context(t, 20*time.Second)
	for _, err := c.try(ctx, "version"); err != nil; _, err = c.try(ctx, "version") { // the CRI plugin starts last
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	c.expect(t, "page", "exec", "-s", second, "sh", "-c", fetch)
	c.do(t, "stop", "--timeout", "10", second)
	c.expect(t, `"exitCode": 3`, "inspect", second)
	c.do(t, "rm", second)
	c.do(t, "stopp", pod)
	c.expect(t, `"exitCode": 137`, "inspect", first)
	c.expect(t, "SANDBOX_NOTREADY", "inspectp", pod)
	c.do(t, "rmp", pod)
	if got := c.do(t, "ps", "-a", "-q") + c.do(t, "pods", "-q"); got != "" {
		t.Errorf("left in the CRI: %q", got)
	}
	if leases := testnet.Leases(t, n.path("leases")); len(leases) > 0 {
		t.Errorf("leases left: %v", leases)
	}
}

// running returns the processes of a program.
func running(t *testing.T, program string) (pids []procid.ID) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		if args := procid.Args(pid); len(args) == 0 || filepath.Base(args[0]) != program {
			continue
		}
		id, err := procid.Of(pid)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, id)
	}
	return pids
}
