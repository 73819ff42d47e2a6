package cri

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/critest"
)

// logs: a log continues in a new file after the old one was moved away.
func logs(ctx context.Context, t *testing.T, n *node) {
	config := critest.Pod("logs")
	pod := n.podOf(ctx, t, config)
	script := "mkfifo /p; while :; do read x </p; echo $x; echo err $x >&2; done"
	container := n.Start(ctx, t, pod, critest.Container("c", "sh", "-c", script), config)
	path := filepath.Join(config.GetLogDirectory(), "c.log")
	say := func(word string) {
		t.Helper()
		n.Sh(ctx, t, container, "while [ ! -p /p ]; do usleep 1000; done; echo "+word+" >/p")
		for {
			text, err := os.ReadFile(path)
			if err == nil && strings.Contains(string(text), " stdout F "+word+"\n") &&
				strings.Contains(string(text), " stderr F err "+word+"\n") {
				return
			}
			pause(ctx, t)
		}
	}
	say("one")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: container}); err != nil {
		t.Fatal(err)
	}
	say("two")
	if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), "one") {
		t.Errorf("the new log: %s, %v", text, err)
	}
	if got := n.containerOf(ctx, t, container).GetLogPath(); got != path {
		t.Errorf("the status has the log at %s", got)
	}
	if _, err := n.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: container}); err != nil {
		t.Fatal(err)
	}
	_, err := n.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: container})
	expect(t, "the log of a container that has ended", err, codes.FailedPrecondition)
	_, err = n.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: "none"})
	expect(t, "the log of a missing container", err, codes.NotFound)
}

// resources: a container's limits change while it runs, and its status shows them.
func resources(ctx context.Context, t *testing.T, n *node) {
	config := critest.Pod("resources")
	pod := n.podOf(ctx, t, config)
	container := n.sleeper(ctx, t, pod, "c", config, func(c *runtimeapi.ContainerConfig) {
		c.Linux.Resources = &runtimeapi.LinuxContainerResources{CpuQuota: 50_000, CpuPeriod: 100_000}
	})
	limits := "cd /sys/fs/cgroup && cat memory.max memory.oom.group cpu.max"
	if got := n.Sh(ctx, t, container, limits); got != "max\n0\n50000 100000\n" {
		t.Errorf("limits %q", got)
	}
	next := &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 96 << 20, CpuQuota: 80_000, CpuPeriod: 100_000}
	_, err := n.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: container, Linux: next})
	if err != nil {
		t.Fatal(err)
	}
	if got := n.Sh(ctx, t, container, limits); got != "100663296\n1\n80000 100000\n" {
		t.Errorf("limits after the update %q", got)
	}
	got := n.containerOf(ctx, t, container).GetResources().GetLinux()
	if got.GetMemoryLimitInBytes() != 96<<20 || got.GetCpuQuota() != 80_000 {
		t.Errorf("the status shows %v", got)
	}
	n.grown(ctx, t, pod, container, config)
	_, err = n.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: "none", Linux: next})
	expect(t, "an update of a missing container", err, codes.NotFound)
	_, err = n.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: "none", Resources: next})
	expect(t, "an update of a missing pod", err, codes.NotFound)
}

// grown: in a pod that was started without resources, a new or updated container can use all of its limits. More than
// the VM can have is refused.
func (n *node) grown(ctx context.Context, t *testing.T, pod, container string, config *runtimeapi.PodSandboxConfig) {
	t.Helper()
	update := func(memory, cpus int64) error {
		next := &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: memory, CpuQuota: cpus * 100_000, CpuPeriod: 100_000}
		_, err := n.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: container, Linux: next})
		return err
	}
	// Check that the memory exists and can be used. The VM had 512 MiB.
	has := "dd if=/dev/zero of=/dev/null bs=500M count=1 2>/dev/null && awk '/MemAvailable/ { print ($2 > %d) }' /proc/meminfo && nproc"
	if err := update(700<<20, 1); err != nil {
		t.Fatal(err)
	}
	if got := n.Sh(ctx, t, container, fmt.Sprintf(has, 700<<10)); got != "1\n1\n" {
		t.Errorf("after an update to 700 MiB: %q", got)
	}
	second := n.sleeper(ctx, t, pod, "second", config, func(c *runtimeapi.ContainerConfig) {
		c.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 700 << 20, CpuQuota: 100_000, CpuPeriod: 100_000}
	})
	if got := n.Sh(ctx, t, second, strings.SplitN(fmt.Sprintf(has, 1400<<10), "&& ", 2)[1]); got != "1\n2\n" {
		t.Errorf("a second container of 700 MiB: %q", got)
	}
	expect(t, "more than the VM can be grown to", update(64<<30, 1), codes.ResourceExhausted)
	huge := critest.Container("huge", "sleep", "1000")
	huge.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 64 << 30}
	_, err := n.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: pod, Config: huge, SandboxConfig: config})
	expect(t, "a container that is larger than the VM can be", err, codes.ResourceExhausted)
}

// execs: the output, exit code, timeout and output limit of commands.
func execs(ctx context.Context, t *testing.T, n *node) {
	config := critest.Pod("execs")
	pod := n.podOf(ctx, t, config)
	container := n.sleeper(ctx, t, pod, "c", config, nil)
	run := func(timeout int64, command ...string) (*runtimeapi.ExecSyncResponse, error) {
		return n.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: container, Cmd: command, Timeout: timeout})
	}
	res, err := run(0, "sh", "-c", "echo out; echo err >&2; exit 5")
	if err != nil || string(res.GetStdout()) != "out\n" || string(res.GetStderr()) != "err\n" || res.GetExitCode() != 5 {
		t.Errorf("%v, %v", res, err)
	}
	if res, err := run(0, "/no/such"); err != nil || res.GetExitCode() != 127 {
		t.Errorf("a command that is not there: %v, %v", res, err)
	}
	_, err = run(1, "sleep", "777")
	expect(t, "a command that takes longer than it may", err, codes.DeadlineExceeded)
	if got := n.Sh(ctx, t, container, "ps -o args | grep -c '^sleep 777' || true"); got != "0\n" {
		t.Errorf("%s commands outlive their deadline", got)
	}
	res, err = run(0, "sh", "-c", "head -c 9000000 /dev/zero")
	if err != nil || len(res.GetStdout()) >= 9_000_000 || len(res.GetStdout()) < 1<<20 {
		t.Errorf("much output: %d bytes, %v", len(res.GetStdout()), err)
	}
	_, err = run(0)
	expect(t, "no command", err, codes.InvalidArgument)
	_, err = n.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: "none", Cmd: []string{"true"}})
	expect(t, "a command in a missing container", err, codes.NotFound)
	if _, err := n.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: container}); err != nil {
		t.Fatal(err)
	}
	_, err = run(0, "true")
	expect(t, "a command in a container that has ended", err, codes.FailedPrecondition)
}

// exits: how containers end, and their termination messages.
func exits(ctx context.Context, t *testing.T, n *node) {
	config := critest.Pod("exits")
	pod := n.podOf(ctx, t, config)
	words := filepath.Join(n.logs, "words")
	if err := os.WriteFile(words, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, script, reason string
		code                 int32
		stop                 bool
		memory               int64
		words                string
	}{
		{name: "completed", script: "exit 0", reason: "Completed"},
		{name: "failed", script: "echo last >/dev/termination-log; exit 3", reason: "Error", code: 3, words: "last\n"},
		{name: "stopped", script: "trap 'exit 4' TERM; echo >/ready; while :; do usleep 10000; done", reason: "Error", code: 4, stop: true},
		{name: "stubborn", script: "trap '' TERM; echo >/ready; while :; do usleep 10000; done", reason: "Error", code: 137, stop: true},
		{name: "hungry", script: "head -c 100000000 /dev/zero | tail", reason: "OOMKilled", code: 137, memory: 16 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := critest.Container(tt.name, "sh", "-c", tt.script)
			if tt.name == "hungry" {
				c.Command = []string{"tail", "/dev/zero"}
			}
			c.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: tt.memory}
			c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/dev/termination-log", HostPath: words}}
			id := n.Start(ctx, t, pod, c, config)
			if tt.stop {
				n.Sh(ctx, t, id, "while [ ! -e /ready ]; do usleep 1000; done")
				if _, err := n.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 1}); err != nil {
					t.Fatal(err)
				}
			}
			st := n.ended(ctx, t, id)
			if st.GetExitCode() != tt.code || st.GetReason() != tt.reason || st.GetFinishedAt() < st.GetStartedAt() || st.GetStartedAt() == 0 {
				t.Errorf("ended with %v", st)
			}
			if got, err := os.ReadFile(words); tt.words != "" && (err != nil || string(got) != tt.words) {
				t.Errorf("its termination message is %q, %v", got, err)
			}
		})
	}
	missing := critest.Container("missing", "/no/such")
	res, err := n.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: pod, Config: missing, SandboxConfig: config})
	if err == nil {
		_, err = n.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: res.GetContainerId()})
		if st := n.ended(ctx, t, res.GetContainerId()); st.GetExitCode() == 0 || st.GetReason() != "StartError" {
			t.Errorf("a command that is not there: %v", st)
		}
	}
	if err == nil || !strings.Contains(err.Error(), "/no/such") {
		t.Errorf("a command that is not there: %v", err)
	}
}
