package cri

import (
	"context"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/critest"
)

// vendors is a node's CDI specification.
const vendors = `{"cdiVersion": "0.7.0", "kind": "example.com/card", "containerEdits": {"env": ["CARDS=1"]}, "devices": [
  {"name": "soft", "containerEdits": {"env": ["MODEL=soft"], "additionalGids": [77], "deviceNodes": [
    {"path": "/dev/card", "hostPath": "/dev/fuse"}]}},
  {"name": "hard", "containerEdits": {"deviceNodes": [{"path": "/dev/card0", "type": "c", "major": 1, "minor": 1}]}},
  {"name": "files", "containerEdits": {"mounts": [{"hostPath": "/usr/lib/card", "containerPath": "/usr/lib/card"}]}}]}`

// devices: a pod can have those host devices that a VM also has, by path and by CDI. Others are refused by name.
func devices(ctx context.Context, t *testing.T, n *node) {
	const dir = "/etc/cdi"
	_, err := os.Stat(dir)
	if err == nil {
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, "") // the tests have their own mount namespace
	} else {
		err = os.Mkdir(dir, 0o755)
		defer os.RemoveAll(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/card.json", []byte(vendors), 0o600); err != nil {
		t.Fatal(err)
	}
	config := critest.Pod("devices")
	pod := n.podOf(ctx, t, config)
	id := n.sleeper(ctx, t, pod, "c", config, func(c *runtimeapi.ContainerConfig) {
		c.Devices = []*runtimeapi.Device{
			{HostPath: "/dev/null", ContainerPath: "/dev/null", Permissions: "rwm"},
			{HostPath: "/dev/zero", ContainerPath: "/dev/nothing", Permissions: "r"},
			{HostPath: "/dev/kmsg", ContainerPath: "/dev/kmsg", Permissions: "rw"},
			{HostPath: "/dev/net/tun", ContainerPath: "/dev/net/tun", Permissions: "rw"},
		}
		c.CDIDevices = []*runtimeapi.CDIDevice{{Name: "example.com/card=soft"}}
	})
	const script = `head -c 3 /dev/nothing | od -An -c; echo word >/dev/null; stat -c %t:%T /dev/kmsg; echo word >/dev/kmsg && echo written
		stat -c %t:%T /dev/card; echo $CARDS $MODEL; id -G; exec 3<>/dev/card && echo open
		exec 3<>/dev/net/tun && echo tun`
	want := "  \\0  \\0  \\0\n1:b\nwritten\na:e5\n1 soft\n0 77\nopen\ntun\n"
	if got := n.Sh(ctx, t, id, script); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for name, word := range map[string]string{
		"example.com/card=hard": "/dev/card0", "example.com/card=files": "/usr/lib/card", "example.com/card": "example.com/card",
	} {
		c := critest.Container("bad", "true")
		c.CDIDevices = []*runtimeapi.CDIDevice{{Name: name}}
		_, err := n.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: pod, Config: c, SandboxConfig: config})
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := critest.Container("bad", "true")
	c.Devices = []*runtimeapi.Device{{HostPath: "/dev/null", ContainerPath: "/dev/x", Permissions: "all"}}
	_, err = n.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: pod, Config: c, SandboxConfig: config})
	expect(t, "permissions", err, codes.InvalidArgument)
}
