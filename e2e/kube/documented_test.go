package kube

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
	"github.com/bulkhead-project/bulkhead/internal/test/testproc"
)

// TestDocumented types the commands of docs/kubernetes.md exactly as written, on a clean node.
func TestDocumented(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	text, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	empty(t, "/etc/cni", "/etc/bulkhead", "/var/lib/bulkhead", "/var/lib/cni", "/var/lib/kubelet", "/run/bulkhead", "/var/log")
	c := testkube.Start(t)
	c.Root, c.Logs = "/var/lib/kubelet", "/var/log/pods"
	registry := testimage.Registry(t)
	registry.Push(t, "library/busybox:1.37", testimage.BusyboxImage(t))
	conf := filepath.Join(c.Dir, "registries.conf")
	mirror := fmt.Sprintf("[[registry]]\nprefix = \"docker.io\"\nlocation = %q\ninsecure = true\n", registry.Host)
	if err := os.WriteFile(conf, []byte("unqualified-search-registries = [\"docker.io\"]\n"+mirror), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl, config := c.Kubectl(t)
	sh := newShell(t, "PATH="+bin()+":"+kubectl+":"+os.Getenv("PATH"), "HOME="+c.Dir, config, "CONTAINERS_REGISTRIES_CONF="+conf,
		"BULKHEAD_LIBEXEC="+bin(), "BULKHEAD_GUEST="+filepath.Join(bin(), "guest"))
	const socket = "/run/bulkhead/cri.sock"
	if !strings.Contains(string(text), "containerRuntimeEndpoint: unix://"+socket+"\n") {
		t.Errorf("the document lacks the kubelet's command")
	}
	for _, block := range blocks(string(text)) {
		if strings.Contains(block, "kubectl") && sh.kubelet == nil {
			sh.kubelet = c.StartKubelet(t, socket)
			serviceAccount(t, c)
		}
		out := sh.run(t, block)
		if strings.Contains(block, "kubectl logs") {
			c.Wait(testdeadline.Context(t, time.Minute), t, "the pod's output", func(context.Context) (err error) {
				if !strings.HasPrefix(out, "hello from Linux ") {
					err, out = fmt.Errorf("its output is %q", out), sh.run(t, block)
				}
				return err
			})
		}
	}
	ctx := testdeadline.Context(t, time.Minute)
	client := critest.Dial(t, socket)
	c.Wait(ctx, t, "the pod's end", func(ctx context.Context) error {
		pods, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		for _, pod := range pods.GetItems() {
			client.Remove(ctx, t, pod.GetId())
		}
		return err
	})
}

// empty hides the contents of directories on this host until the test's end.
func empty(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			// The kubelet's directory may already be unmounted.
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
				t.Errorf("unmount %s: %v", dir, err)
			}
		})
	}
}

// serviceAccount waits for the namespace's service account. Pods need it, and a new cluster creates it late.
func serviceAccount(t *testing.T, c *testkube.Cluster) {
	t.Helper()
	c.Wait(testdeadline.Context(t, time.Minute), t, "the namespace's service account", func(ctx context.Context) error {
		_, err := c.Client.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// blocks returns the command blocks of a document.
func blocks(text string) (out []string) {
	for _, part := range strings.Split(text, "\n```sh\n")[1:] {
		block, _, _ := strings.Cut(part, "\n```\n")
		out = append(out, block)
	}
	return out
}

// shell is a shell that runs typed commands.
type shell struct {
	kubelet *testkube.Process
	in      io.Writer
	lines   *bufio.Scanner
}

func newShell(t *testing.T, env ...string) *shell {
	t.Helper()
	cmd := exec.Command("bash", "-eu")
	cmd.Dir, cmd.Env = "../..", env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	wait, err := testproc.Lasting(cmd)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with its children
		_ = wait()
		out.Close()
	})
	return &shell{in: in, lines: bufio.NewScanner(out)}
}

// done is the marker that the shell prints after a block.
const done = "--- done ---"

// run types a block and returns its output. It fails the test if the block fails.
func (s *shell) run(t *testing.T, block string) string {
	t.Helper()
	if _, err := io.WriteString(s.in, block+"\necho '"+done+"'\n"); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for s.lines.Scan() {
		if s.lines.Text() == done {
			t.Logf("$ %s\n%s", block, &said)
			return said.String()
		}
		said.WriteString(s.lines.Text() + "\n")
	}
	t.Fatalf("$ %s\n%s", block, &said)
	return ""
}
