package cri

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testfaults"
	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
	"github.com/bulkhead-project/bulkhead/internal/test/testproc"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// killPoints are the fault points of each call, in order.
var killPoints = []struct {
	call   string
	points []string
}{
	{"RunPodSandbox", []string{
		"run.reserve", "run.store", "journal.network", "cni.recorded", "cni.namespace", "run.network", "cni.added", "cgroup.made",
		"shim.recorded", "shim.spawned", "run.shim", "run.address", "run.create", "run.start", "run.ready",
	}},
	{"CreateContainer", []string{
		"container.recorded", "journal.shares", "share.spawned", "share.recorded", "container.pinned", "container.bundled",
		"container.created",
	}},
	{"StartContainer", []string{"container.started"}},
	{"StopPodSandbox", []string{
		"stop.killed", "undo.shares", "undone.shares",
		"undo.shim", "undone.shim", "undo.network", "cni.deleted", "cni.removed", "undone.network", "stop.undone",
		"stop.recorded",
	}},
	{"RemovePodSandbox", []string{"remove.marked", "unwind.undone", "unwind.state", "remove.unwound", "remove.released"}},
}

// killParts is the number of days until every cell was tested once.
const killParts = 5

// TestKill kills the server at a step of a call. The next server has the pod in its old or new state, the call can be
// repeated, and nothing is left after the pod is removed.
func TestKill(t *testing.T) {
	n := newKilled(t)
	cell := 0
	for _, c := range killPoints {
		for _, point := range c.points {
			cell++
			if !testturn.Long() && cell%killParts != testturn.Day()%killParts &&
				!strings.Contains(strings.Join(os.Args, " "), "TestKill/") {
				continue
			}
			t.Run(c.call+"/"+point, func(t *testing.T) { n.kill(t, c.call, point) })
		}
	}
}

// killed is a node with a server in a process of its own.
type killed struct {
	*node
	faults *testfaults.Faults
	bin    string
	server *exec.Cmd
}

func newKilled(t *testing.T) *killed {
	t.Helper()
	n := &killed{node: newNode(t, enginetest.Clones)}
	var err error
	if n.bin, err = testfaults.Programs(); err != nil {
		t.Fatal(err)
	}
	images, err := image.Open(n.o.Roots, "cri")
	if err != nil {
		t.Fatal(err)
	}
	enginetest.LoadImage(t, images)
	n.faults = testfaults.Listen(t, filepath.Join(filepath.Dir(n.o.Roots.State), "faults"))
	return n
}

// start starts the server.
func (n *killed) start(ctx context.Context, t *testing.T) {
	t.Helper()
	n.server = exec.Command(filepath.Join(n.bin, "bulkhead-engine"), "cri", "--listen=unix://"+n.o.Socket,
		"--kubelet-root="+filepath.Join(n.data, "kubelet"), "--log-dir="+n.logs, "--warm=off",
		"--cni-conf-dir="+n.o.Engine.CNI.Conf, "--cni-bin-dir="+testnet.Plugins)
	n.server.Env = append(os.Environ(), "BULKHEAD_DATA="+n.o.Roots.Data, "BULKHEAD_STATE="+n.o.Roots.State,
		"BULKHEAD_LIBEXEC="+n.bin, "BULKHEAD_GUEST="+testfaults.Guest(), "BULKHEAD_FAULTS="+n.faults.Path)
	n.server.Stdout, n.server.Stderr = t.Output(), t.Output()
	testproc.Start(t, n.server)
	if _, err := n.Version(ctx, &runtimeapi.VersionRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
}

func (n *killed) killServer(t *testing.T) {
	t.Helper()
	if err := n.server.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = n.server.Wait()
}

func (n *killed) kill(t *testing.T, call, point string) {
	ctx := testdeadline.Context(t, time.Minute)
	n.start(ctx, t)
	config, container := critest.Pod("victim"), critest.Container("c", "sleep", "1000")
	config.LogDirectory = filepath.Join(n.logs, "victim")
	container.Mounts = []*runtimeapi.Mount{{ContainerPath: "/host", HostPath: t.TempDir()}}
	var pod, id string
	calls := []struct {
		name string
		do   func(ctx context.Context) error
	}{
		{"RunPodSandbox", func(ctx context.Context) error {
			res, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
			pod = res.GetPodSandboxId()
			return err
		}},
		{"CreateContainer", func(ctx context.Context) error {
			res, err := n.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: pod, Config: container, SandboxConfig: config})
			id = res.GetContainerId()
			return err
		}},
		{"StartContainer", func(ctx context.Context) error {
			_, err := n.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
			return err
		}},
		{"StopPodSandbox", func(ctx context.Context) error {
			_, err := n.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: pod})
			return err
		}},
		{"RemovePodSandbox", func(ctx context.Context) error {
			_, err := n.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod})
			return err
		}},
	}
	for _, c := range calls {
		if c.name == call {
			n.killAt(ctx, t, point, c.do)
			n.start(ctx, t)
			n.consistent(ctx, t)
		}
		err := c.do(ctx)
		if c.name == "StartContainer" && call == c.name && err != nil && strings.Contains(err.Error(), "running") {
			err = nil // it had been started
		}
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if c.name == "RunPodSandbox" {
			if got := n.addresses(ctx, t, pod); len(got) != 2 {
				t.Errorf("addresses %q", got)
			}
		}
	}
	n.killServer(t)
	n.nothingLeft(t)
	n.noProcess(t, pod)
}

// killAt makes a call and kills the server at a fault point.
func (n *killed) killAt(ctx context.Context, t *testing.T, point string, call func(context.Context) error) {
	t.Helper()
	pid := n.server.Process.Pid
	hit := n.faults.Arm(func(h fault.Hit) bool { return h.Point == point && h.PID == pid })
	defer n.faults.Disarm()
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	select {
	case s := <-hit:
		n.killServer(t)
		s.Release()
		<-done
	case err := <-done:
		t.Fatalf("the point %s was not reached: %v", point, err)
	}
}

// consistent: everything that the server lists has a status and is listed once.
func (n *killed) consistent(ctx context.Context, t *testing.T) {
	t.Helper()
	pods, err := n.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.GetItems() {
		if _, err := n.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.GetId()}); err != nil {
			t.Error(err)
		}
	}
	containers, err := n.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range containers.GetContainers() {
		if _, err := n.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()}); err != nil {
			t.Error(err)
		}
	}
}

// noProcess checks that no shim, VM or helper process of the pod is left.
func (n *killed) noProcess(t *testing.T, pod string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Its environment or arguments show its owner.
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if strings.Contains(string(env), n.faults.Path) || slices.Contains(procid.Args(pid), filepath.Join(n.o.Roots.Instance("cri"), pod)) {
			t.Errorf("process %d is left: %q", pid, procid.Args(pid))
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	dirs, err := os.ReadDir(n.o.Roots.Sandboxes())
	if err != nil || len(dirs) > 0 {
		t.Errorf("sandboxes left: %v, %v", dirs, err)
	}
}
