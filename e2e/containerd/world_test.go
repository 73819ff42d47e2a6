// Package containerd tests the front with real versions of containerd, on a host of the tests' own: Debian's, and the newest
// one, built from its module. The quick tests use a front with containers that are processes of the host.
//
// BULKHEAD_CONTAINERD adds versions: it lists directories with the programs containerd and ctr, separated by colons.
package containerd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/testgo"
	"github.com/bulkhead-project/bulkhead/internal/testhost"
	"github.com/bulkhead-project/bulkhead/internal/testimage"
	"github.com/bulkhead-project/bulkhead/internal/testkube"
)

func TestMain(m *testing.M) { os.Exit(testhost.Run(m)) }

// release is a version of containerd.
type release struct {
	name            string
	containerd, ctr string
	config          string // of its own form
}

// config1 and config2 are configurations of containerd 1 and 2: ROOT, STATE, SOCKET and RUNTIME are replaced.
const (
	config1 = `version = 2
root = "ROOT"
state = "STATE"
[grpc]
  address = "SOCKET"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/busybox:demo"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "podsandbox"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.podsandbox]
      runtime_type = "RUNTIME"
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "ROOT/cni"
`
	config2 = `version = 3
root = "ROOT"
state = "STATE"
[grpc]
  address = "SOCKET"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/busybox:demo"
[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "podsandbox"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.podsandbox]
    runtime_type = "RUNTIME"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.shim]
    runtime_type = "RUNTIME"
    sandboxer = "shim"
[plugins."io.containerd.cri.v1.runtime".cni]
  conf_dir = "ROOT/cni"
`
)

// releases returns the versions under test. Only they need a host of their own.
func releases(t *testing.T) []release {
	t.Helper()
	if !testhost.Inside() {
		t.Skip("only root can create a host")
	}
	old, err := exec.LookPath("containerd")
	if err != nil {
		t.Fatalf("%v (hack/setup test installs it)", err)
	}
	list := []release{
		{"1.6", old, filepath.Join(filepath.Dir(old), "ctr"), config1},
		{"2.4", testkube.Program(t, "containerd"), testkube.Program(t, "ctr"), config2},
	}
	for _, dir := range filepath.SplitList(os.Getenv("BULKHEAD_CONTAINERD")) {
		r := release{filepath.Base(dir), filepath.Join(dir, "containerd"), filepath.Join(dir, "ctr"), config2}
		if out, err := exec.Command(r.containerd, "--version").Output(); err != nil {
			t.Fatal(err)
		} else if strings.Contains(string(out), " v1.") || strings.Contains(string(out), " 1.") {
			r.config = config1
		}
		list = append(list, r)
	}
	return list
}

// each runs a test with every version, and a front with containers that are processes of the host.
func each(t *testing.T, test func(t *testing.T, n *node)) {
	t.Helper()
	all := releases(t)
	front := hostFront(t)
	for _, r := range all {
		t.Run(r.name, func(t *testing.T) { test(t, newNode(t, r, front)) })
	}
}

// image is the name of the image with busybox.
const image = "localhost/busybox:demo"

// hostFront builds the front with containers that are processes of the host, and returns its path.
func hostFront(t *testing.T) string {
	t.Helper()
	path := filepath.Join(shortDir(t), "containerd-shim-fronttest-v2")
	cmd := testgo.Command(t.Context(), "build", "-tags", "grpcnotrace", "-o", path, "../../door/containerd/fronttest/shim")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// shortDir returns a directory with a path that is short enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "c")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// node is a host with containerd.
type node struct {
	release
	front string // the runtime's program
	dir   string
	cmd   *exec.Cmd
	log   *os.File
}

// newNode starts containerd with an image. It stops at the test's end, and nothing may be left then.
func newNode(t *testing.T, r release, front string) *node {
	t.Helper()
	n := &node{release: r, front: front, dir: shortDir(t)}
	text := strings.NewReplacer(
		"ROOT", n.path("root"), "STATE", n.path("state"), "SOCKET", n.path("c.sock"), "RUNTIME", front,
	).Replace(r.config)
	if err := os.WriteFile(n.path("config.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if n.log, err = os.Create(n.path("log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.nothingLeft(t)
		n.stop(t)
		if b, err := os.ReadFile(n.log.Name()); err == nil && t.Failed() {
			t.Logf("containerd's log:\n%s", b[max(0, len(b)-20000):])
		}
		n.log.Close()
	})
	n.start(t)
	tag, err := name.NewTag(image)
	if err != nil {
		t.Fatal(err)
	}
	archive := n.path("image.tar")
	if err := tarball.WriteToFile(archive, tag, testimage.BusyboxImage(t)); err != nil {
		t.Fatal(err)
	}
	n.ctr(t, "", "image", "import", archive)
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// start starts containerd, and returns when it answers.
func (n *node) start(t *testing.T) {
	t.Helper()
	n.cmd = exec.Command(n.containerd, "-c", n.path("config.toml"))
	n.cmd.Env = append(os.Environ(), "FRONTTEST_DIR="+n.path("containers"))
	n.cmd.Stdout, n.cmd.Stderr = n.log, n.log
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx := testdeadline.Context(t, 30*time.Second)
	for {
		if _, err := n.try(ctx, "", "version"); err == nil {
			return
		} else if ctx.Err() != nil {
			t.Fatalf("containerd does not answer: %v", err)
		}
	}
}

// stop stops containerd, and leaves its fronts.
func (n *node) stop(t *testing.T) {
	t.Helper()
	_ = n.cmd.Process.Signal(os.Interrupt)
	ended := make(chan struct{})
	go func() {
		_ = n.cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(testdeadline.For(30 * time.Second)):
		_ = n.cmd.Process.Kill()
		<-ended
		t.Error("containerd did not stop")
	}
}

// result is the result of a command.
type result struct{ stdout, stderr string }

// try runs ctr. A failure is an error with its exit status and stderr.
func (n *node) try(ctx context.Context, stdin string, args ...string) (result, error) {
	cmd := exec.CommandContext(ctx, n.release.ctr, append([]string{"-a", n.path("c.sock"), "-n", namespace}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	r := result{out.String(), warning(errs.String())}
	if err != nil {
		return r, fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, r.stderr)
	}
	return r, nil
}

// namespace is containerd's namespace for tests, which is the CRI plugin's.
const namespace = "k8s.io"

// warning removes the warning of a new ctr that it is on a host with version 1 of cgroups.
func warning(stderr string) string {
	var kept strings.Builder
	for line := range strings.Lines(stderr) {
		if !strings.Contains(line, "DEPRECATION") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// ctr runs ctr, which must succeed, and returns its output.
func (n *node) ctr(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	r, err := n.try(testdeadline.Context(t, 20*time.Second), stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return r.stdout
}

// run is ctr run with the front.
func (n *node) run(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	return n.ctr(t, stdin, append([]string{"run", "--runtime", n.front}, args...)...)
}
