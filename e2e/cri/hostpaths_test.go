package cri

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// mounting adds mounts of host directories to a container.
func mounting(mounts ...*runtimeapi.Mount) func(*runtimeapi.ContainerConfig) {
	return func(c *runtimeapi.ContainerConfig) { c.Mounts = append(c.Mounts, mounts...) }
}

// hostPaths: a pod has the mounted directories and files of the host, and two pods can share them.
func hostPaths(ctx context.Context, t *testing.T, n *node) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o750); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"sub/greeting": "hello", "file": "a file"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Lchown(filepath.Join(dir, "sub/greeting"), 1234, 5678); err != nil {
		t.Fatal(err)
	}
	config := critest.Pod("shared")
	pod := n.podOf(ctx, t, config)
	first := n.sleeper(ctx, t, pod, "first", config, mounting(
		&runtimeapi.Mount{ContainerPath: "/host", HostPath: dir},
		&runtimeapi.Mount{ContainerPath: "/ro", HostPath: dir, Readonly: true},
		&runtimeapi.Mount{ContainerPath: "/one", HostPath: filepath.Join(dir, "file"), Readonly: true},
	))
	for _, tt := range []struct{ script, want string }{
		{"cat /host/sub/greeting /one", "helloa file"},
		{"stat -c '%u %g %a' /host/sub/greeting", "1234 5678 640"},
		{"touch /ro/new 2>&1", "touch: /ro/new: Read-only file system"},
		{"echo changed >/host/made && stat -c '%u %a' /host/made", "0 644"},
		{"mkdir /host/d && ln -s /etc/shadow /host/d/out && readlink /ro/d/out", "/etc/shadow"},
		{"mv /host/made /host/d/moved && cat /ro/d/moved", "changed"},
		{"ls /ro | sort | tr '\\n' ' '", "d file sub "},
		{"grep ' /host ' /proc/mounts | cut -d' ' -f1,3", "bulkhead fuse"},
	} {
		if got := strings.TrimSuffix(n.Sh(ctx, t, first, tt.script+"; true"), "\n"); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.script, got, tt.want)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "d/moved")); err != nil || string(text) != "changed\n" {
		t.Errorf("on the host: %q, %v", text, err)
	}
	// Another container has another directory, and another pod has the same one.
	other := t.TempDir()
	second := n.sleeper(ctx, t, pod, "second", config, mounting(&runtimeapi.Mount{ContainerPath: "/other", HostPath: other}))
	n.Sh(ctx, t, second, "echo second >/other/second")
	config2 := critest.Pod("shared2")
	third := n.sleeper(ctx, t, n.podOf(ctx, t, config2), "third", config2, mounting(&runtimeapi.Mount{ContainerPath: "/h", HostPath: dir}))
	n.Sh(ctx, t, third, "echo third >/h/third")
	if got := n.Sh(ctx, t, first, "cat /host/third"); got != "third\n" {
		t.Errorf("the other pod's file: %q", got)
	}
	// Changes on the host are visible.
	if err := os.WriteFile(filepath.Join(dir, "sub/greeting"), []byte("good day"), 0); err != nil {
		t.Fatal(err)
	}
	soon := testdeadline.Context(t, time.Second)
	for n.Sh(ctx, t, first, "cat /host/sub/greeting") != "good day" {
		pause(soon, t)
	}
	n.serverKilled(ctx, t, first)
}

// serverKilled: the file server of the pods' host directories is restarted, and the mounts keep working.
func (n *node) serverKilled(ctx context.Context, t *testing.T, container string) {
	t.Helper()
	servers := processes(t, "bulkhead-share")
	if len(servers) != 2 {
		t.Errorf("%d servers for two pods", len(servers))
	}
	for _, pid := range servers {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	// Requests that were running when it ended fail. Later requests wait.
	const script = "until cat /host/sub/greeting /one >/dev/null 2>&1; do :; done; cat /host/sub/greeting /one"
	if got := n.Sh(ctx, t, container, script); got != "good daya file" {
		t.Errorf("after the server's end: %q", got)
	}
}

// hostPathsRefused: forbidden paths are refused by name.
func hostPathsRefused(ctx context.Context, t *testing.T, n *node) {
	config := critest.Pod("nothing-shared")
	pod := n.podOf(ctx, t, config)
	for path, code := range map[string]codes.Code{
		"/proc/sys":                codes.Unimplemented,
		"/sys":                     codes.Unimplemented,
		"/dev/null":                codes.Unimplemented,
		n.o.Roots.Data:             codes.PermissionDenied,
		n.o.Roots.State + "/../x/": codes.OK, // the server creates it
	} {
		c := critest.Container("refused", "true")
		c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/x", HostPath: path}}
		id, err := n.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: pod, Config: c, SandboxConfig: config})
		expect(t, path, err, code)
		if err == nil {
			if _, err := n.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id.GetContainerId()}); err != nil {
				t.Error(err)
			}
		}
	}
}

// processes returns the processes of a program that this test's engines started.
func processes(t *testing.T, program string) (pids []int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		args, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || filepath.Base(strings.SplitN(string(args), "\x00", 2)[0]) != program {
			continue
		}
		pid, parent := 0, 0
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat))
		for i, at := range map[*int]int{&pid: 0, &parent: 3} {
			for _, digit := range fields[at] {
				*i = *i*10 + int(digit-'0')
			}
		}
		if parent == os.Getpid() && fields[2] != "Z" {
			pids = append(pids, pid)
		}
	}
	return pids
}
