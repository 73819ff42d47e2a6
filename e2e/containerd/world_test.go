// Package containerd tests the front and its VMs with real versions of containerd, on a host of the tests' own: Debian's, and
// the newest one, built from its module.
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
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/bulkhead-project/bulkhead/door/containerd/bootstrap"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
	"github.com/bulkhead-project/bulkhead/internal/test/testhost"
	"github.com/bulkhead-project/bulkhead/internal/test/testhost/leftover"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

func TestMain(m *testing.M) { os.Exit(testhost.Run(m)) }

// release is a version of containerd.
type release struct {
	name            string
	containerd, ctr string   // programs; empty means the newest ones, built once
	config          string   // of its own form
	snippet         string   // the file in deploy/clients that completes it
	handlers        []string // runtime handlers in both
}

// config1 and config2 are configurations of containerd 1 and 2: ROOT, STATE, SOCKET and CNI are replaced. The runtime
// bulkhead is the one of the installed examples.
const (
	config1 = `version = 2
root = "ROOT"
state = "STATE"
[grpc]
  address = "SOCKET"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/busybox:demo"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "bulkhead"
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "ROOT/cni"
    bin_dir = "CNI"
`
	config2 = `version = 3
root = "ROOT"
state = "STATE"
[grpc]
  address = "SOCKET"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/busybox:demo"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "bulkhead"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.podsandbox]
    runtime_type = "io.containerd.bulkhead.v2"
[plugins."io.containerd.cri.v1.runtime".cni]
  conf_dir = "ROOT/cni"
  bin_dirs = ["CNI"]
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
		{"1.6", old, filepath.Join(filepath.Dir(old), "ctr"), config1, "containerd.toml", []string{"bulkhead"}},
		{"2.4", "", "", config2, "containerd-2.toml", []string{"podsandbox", "bulkhead"}},
	}
	for _, dir := range filepath.SplitList(os.Getenv("BULKHEAD_CONTAINERD")) {
		r := list[1]
		r.name, r.containerd, r.ctr = filepath.Base(dir), filepath.Join(dir, "containerd"), filepath.Join(dir, "ctr")
		if out, err := exec.Command(r.containerd, "--version").Output(); err != nil {
			t.Fatal(err)
		} else if strings.Contains(string(out), " v1.") || strings.Contains(string(out), " 1.") {
			r.config, r.snippet, r.handlers = config1, "containerd.toml", []string{"bulkhead"}
		}
		list = append(list, r)
	}
	return list
}

// TestContainerd plays the life of containers and pods with every version. Each day is the turn of one.
func TestContainerd(t *testing.T) {
	all := releases(t)
	if testing.Short() {
		t.Skip("boots VMs")
	}
	for turn, r := range all {
		t.Run(r.name, testturn.In(turn%2, 2, func(t *testing.T) {
			if r.containerd == "" {
				r.containerd, r.ctr = testkube.Program(t, "containerd"), testkube.Program(t, "ctr")
			}
			n := newNode(t, r)
			n.run(t, "", "--rm", image, "first", "/bin/true") // makes directories and cgroups that stay
			for _, s := range scenarios {
				t.Run(s.name, func(t *testing.T) {
					before := leftover.Take(t, n.stateDirs()...)
					t.Run("test", func(t *testing.T) { s.test(t, n) }) // and its cleanup
					before.ExpectNothingNew(testdeadline.Context(t, 20*time.Second), t, n.stateDirs()...)
				})
			}
		}))
	}
}

var scenarios = []struct {
	name string
	test func(t *testing.T, n *node)
}{
	{"run", runs},
	{"life", life},
	{"terminal", terminal},
	{"log uris", logURIs},
	{"pods", pods},
	{"faults", faults},
	{"restart", restart},
	{"documented", documented},
}

// stateDirs have the files of containers: sockets and records of fronts, and bundles.
func (n *node) stateDirs() []string {
	dirs := []string{bootstrap.DefaultSocketDir}
	for _, pattern := range []string{
		"/run/bulkhead/containerd/*/*", n.path("state/io.containerd.runtime.v2.task/*/*"),
		n.path("state/io.containerd.sandbox.controller.v1.shim/*/*"),
	} {
		found, _ := filepath.Glob(pattern) // the pattern is valid
		dirs = append(dirs, found...)
	}
	return dirs
}

// image is the name of the image with busybox.
const image = "localhost/busybox:demo"

// runtime is the name of the front's runtime.
const runtime = "io.containerd.bulkhead.v2"

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
	dir string
	cmd *exec.Cmd
	log *os.File
}

// newNode starts containerd with an image. It stops at the test's end.
func newNode(t *testing.T, r release) *node {
	t.Helper()
	n := &node{release: r, dir: shortDir(t)}
	root, err := testgo.Root()
	if err != nil {
		t.Fatal(err)
	}
	snippet, err := os.ReadFile(filepath.Join(root, "deploy/clients", r.snippet))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(
		"ROOT", n.path("root"), "STATE", n.path("state"), "SOCKET", n.path("c.sock"), "CNI", testnet.Plugins,
	).Replace(r.config) + regexp.MustCompile(`(?m)^version = .*`).ReplaceAllString(string(snippet), "")
	if err := os.WriteFile(n.path("config.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(n.path("root/cni"), 0o700); err != nil {
		t.Fatal(err)
	}
	testnet.WriteBridge(t, n.path("root/cni"), n.path("leases"))
	if n.log, err = os.Create(n.path("log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
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
	n.cmd.Env = append(os.Environ(), "PATH="+os.Getenv("BULKHEAD_LIBEXEC")+":"+os.Getenv("PATH"))
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

// kill kills containerd.
func (n *node) kill(t *testing.T) {
	t.Helper()
	if err := n.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = n.cmd.Wait() // it was killed
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
	return n.ctr(t, stdin, append([]string{"run", "--runtime", runtime}, args...)...)
}
