package node

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/bulkhead-project/bulkhead/internal/busybox"
	"github.com/bulkhead-project/bulkhead/internal/ociimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// pauseImage is the image of the process that holds the namespaces of a pod of containerd's.
const pauseImage = "localhost/pause:test"

// containerdConfig is containerd's configuration. DIR and CNI are replaced.
const containerdConfig = `version = 2
root = "DIR/root"
state = "DIR/state"
[grpc]
address = "DIR/c.sock"
[ttrpc]
address = "DIR/t.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "DIR/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "` + pauseImage + `"
disable_tcp_service = true
stream_server_address = "127.0.0.1"
stream_server_port = "0"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "CNI"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
Root = "DIR/runc"
`

// startContainerd starts Debian's containerd with runc. At the end of the test it expects that no pods are left.
func (w *world) startContainerd(ctx context.Context, t *testing.T) {
	t.Helper()
	dir := filepath.Join(w.Dir, "c")
	config := filepath.Join(dir, "config.toml")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("DIR", dir, "CNI", w.networks()).Replace(containerdConfig)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("containerd", "--config", config)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.containerd = filepath.Join(dir, "c.sock")
	t.Cleanup(func() {
		w.removeSandboxes(t)
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		stuck := time.AfterFunc(testdeadline.For(20*time.Second), func() { _ = cmd.Process.Kill() })
		defer stuck.Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("containerd: %v", err)
		}
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("containerd: %s", said)
		}
	})
	w.Wait(ctx, t, "containerd's answer", func(ctx context.Context) error { return w.ctr(ctx, "version").Run() })
	if out, err := w.ctr(ctx, "images", "import", "--index-name", pauseImage, writePause(ctx, t, dir)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// writePause writes an archive with the pause image into dir, and returns its path.
func writePause(ctx context.Context, t *testing.T, dir string) string {
	t.Helper()
	img, err := busybox.Image(ctx, busybox.Binary)
	if err != nil {
		t.Fatal(err)
	}
	f, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config := f.Config
	config.Entrypoint, config.Cmd = nil, []string{"/bin/sleep", "1000000"}
	if img, err = mutate.Config(img, config); err != nil {
		t.Fatal(err)
	}
	layout, archive := filepath.Join(dir, "pause"), filepath.Join(dir, "pause.tar")
	if err := ociimage.WriteLayout(layout, img); err != nil {
		t.Fatal(err)
	}
	if err := ociimage.WriteArchive(archive, layout); err != nil {
		t.Fatal(err)
	}
	return archive
}

// ctr is a command of containerd's client in the CRI's namespace.
func (w *world) ctr(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ctr", append([]string{"--address", w.containerd, "--namespace", "k8s.io"}, args...)...)
}

// sandboxes returns the number of containerd's pods.
func (w *world) sandboxes(t testing.TB) int {
	t.Helper()
	out, err := w.ctr(context.Background(), "containers", "list", "-q", `labels."io.cri-containerd.kind"==sandbox`).Output()
	if err != nil {
		t.Error(err)
	}
	return len(strings.Fields(string(out)))
}

// removeSandboxes reports pods that are left, and ends their processes.
func (w *world) removeSandboxes(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testdeadline.For(time.Minute))
	defer cancel()
	out, err := w.ctr(ctx, "tasks", "list", "-q").Output()
	if err != nil {
		t.Error(err)
	}
	for _, id := range strings.Fields(string(out)) {
		t.Errorf("containerd's container %s is left", id)
		if out, err := w.ctr(ctx, "tasks", "rm", "--force", id).CombinedOutput(); err != nil {
			t.Errorf("remove %s: %v: %s", id, err, out)
		}
	}
}
