package cri

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/critest"
)

// loopDevice returns a block device of the host with a size, in bytes, and text at its beginning.
func loopDevice(t *testing.T, size int64, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", path).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	loop := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", loop).CombinedOutput(); err != nil {
			t.Errorf("losetup: %v: %s", err, out)
		}
	})
	return loop
}

// blockDevices: a container can use a block device of the host that it names by a link, as the kubelet does, with the
// requested permissions and also after a restart. Another pod is refused meanwhile. As a mount, the device can be
// opened only by a privileged container.
func blockDevices(ctx context.Context, t *testing.T, n *node) {
	const size = 64 << 20
	loop, link := loopDevice(t, size, "written"), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(loop, link); err != nil {
		t.Fatal(err)
	}
	config := critest.Pod("disks")
	pod := n.podOf(ctx, t, config)
	having := func(permissions string) func(*runtimeapi.ContainerConfig) {
		return func(c *runtimeapi.ContainerConfig) {
			c.Devices = append(c.Devices, &runtimeapi.Device{HostPath: link, ContainerPath: "/dev/xvda", Permissions: permissions})
		}
	}
	const script = "head -c 7 /dev/xvda; blockdev --getsize64 /dev/xvda; stat -c %F /dev/xvda; echo WRITTEN >/dev/xvda; head -c 7 /dev/xvda"
	for attempt, tt := range []struct{ name, permissions, want string }{
		{"writer", "mrw", "written67108864\nblock special file\nWRITTEN"},
		{"reader", "r", "WRITTEN67108864\nblock special file\nsh: can't create /dev/xvda: Operation not permitted\nWRITTEN"},
		{"writer", "rwm", "WRITTEN67108864\nblock special file\nWRITTEN"},
	} {
		c := n.sleeper(ctx, t, pod, tt.name, config, having(tt.permissions))
		if got := n.Sh(ctx, t, c, "exec 2>&1; "+script); got != tt.want {
			t.Errorf("%d: %s printed %q", attempt, tt.name, got)
		}
		if attempt == 0 {
			other := critest.Pod("other-disks")
			oc := critest.Container("refused", "true")
			having("rwm")(oc)
			_, err := n.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
				PodSandboxId: n.podOf(ctx, t, other), Config: oc, SandboxConfig: other,
			})
			expect(t, "a device of another pod", err, codes.FailedPrecondition)
		}
		if _, err := n.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c}); err != nil {
			t.Fatal(err)
		}
	}
	volume := mounting(&runtimeapi.Mount{ContainerPath: "/disk", HostPath: loop})
	mounted := n.sleeper(ctx, t, pod, "mounted", config, volume)
	const closed = "block special file\nhead: /disk: Operation not permitted\nsh: can't create /disk: Operation not permitted\n"
	if got := n.Sh(ctx, t, mounted, "exec 2>&1; stat -c %F /disk; head -c 7 /disk; echo x >/disk; true"); got != closed {
		t.Errorf("a mounted device: %q", got)
	}
	config = critest.Pod("privileged-disks")
	privileged := n.sleeper(ctx, t, n.podOf(ctx, t, config), "mounted", config, func(c *runtimeapi.ContainerConfig) {
		volume(c)
		c.Linux.SecurityContext = &security{Privileged: true}
	})
	if got := n.Sh(ctx, t, privileged, "head -c 7 /disk; stat -c %F /disk"); got != "WRITTENblock special file\n" {
		t.Errorf("a mounted device of a privileged container: %q", got)
	}
}
