package shim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/task"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/busybox"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/events"
	"github.com/bulkhead-project/bulkhead/shim/layout"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// TestPod takes one pod through its whole life in a real VM: start, log, exec with stdin, kill -9 of the shim,
// adoption, exit, deletion.
func TestPod(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	o := options(t)
	c, err := shim.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cleanUp(t, o) })
	defer c.Close()
	config := sandbox.Config{
		Version: sandbox.ConfigVersion, ID: o.ID, Instance: o.Instance, Name: "p", Namespace: "default",
		Hostname: "p", VM: o.VM, MemoryMiB: o.VM.Memory, Created: time.Now(),
	}
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Sandbox.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
		SandboxID: o.ID, Options: &anypb.Any{TypeUrl: layout.ConfigType, Value: raw},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Sandbox.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxID: o.ID}); err != nil {
		t.Fatalf("start: %v\n%s", err, read(filepath.Join(o.StateDir, "console.log")))
	}
	t.Logf("shim: %s", weight(c.PID()))

	const lines = 60
	log := filepath.Join(t.TempDir(), "0.log")
	script := fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); usleep 50000; done; exit 7", lines)
	create(t, ctx, c, o, "main", log, "sh", "-c", script)
	if _, err := c.Task.Start(ctx, &taskv3.StartRequest{ID: "main"}); err != nil {
		t.Fatal(err)
	}

	execEcho(t, ctx, c)
	execPrepared(t, ctx, c)

	// The shim dies in the middle of the output.
	waitFor(t, log, "line 10")
	st, err := c.Extension.Status(ctx, &shimv1.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	confined(t, o, int(st.VmPid))
	sealed(t, c.PID())
	for _, pid := range []int{int(st.VmPid), c.PID()} {
		leavesNothing(t, pid)
	}
	id, err := procid.Of(c.PID())
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	gone(t, "shim", c.PID())

	o.Logs = map[string]*os.File{"main": openLog(t, log)}
	began := time.Now()
	adopted, err := shim.Adopt(ctx, o)
	if err != nil {
		t.Fatalf("adopt: %v\n%s", err, read(filepath.Join(o.StateDir, "shim.log")))
	}
	t.Logf("adopted within %v", time.Since(began))
	defer adopted.Close()
	after, err := adopted.Extension.Status(ctx, &shimv1.StatusRequest{})
	if err != nil || after.VmPid != st.VmPid || after.ShimPid == st.ShimPid || after.State != "running" {
		t.Errorf("adopted %v, %v", after, err)
	}
	exit, err := adopted.Task.Wait(ctx, &taskv3.WaitRequest{ID: "main"})
	if err != nil || exit.ExitStatus != 7 {
		t.Errorf("exit %v, %v", exit, err)
	}
	exactlyOnce(t, log, lines)

	killVM(t, ctx, adopted, o, int(st.VmPid))
	sealed(t, adopted.PID())
	adopted = startAgain(t, ctx, adopted, o)
	defer adopted.Close()
	if _, err := adopted.Sandbox.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxID: o.ID}); err != nil {
		t.Errorf("start again: %v", err)
	}
	again, err := adopted.Extension.Status(ctx, &shimv1.StatusRequest{})
	if err != nil || again.VmPid == st.VmPid || again.State != "running" {
		t.Errorf("started again: %v, %v", again, err)
	}
	defer gone(t, "second VM", int(again.GetVmPid()))
	if _, err := adopted.Sandbox.ShutdownSandbox(ctx, &sandboxv1.ShutdownSandboxRequest{SandboxID: o.ID}); err != nil {
		t.Error(err)
	}
	gone(t, "shim", adopted.PID())
	gone(t, "VM", int(st.VmPid))
}

// startAgain starts a stopped sandbox with a new shim. A shim that has had a VM is sealed and starts no other.
func startAgain(t *testing.T, ctx context.Context, c *shim.Client, o shim.Options) *shim.Client {
	t.Helper()
	_, err := c.Sandbox.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxID: o.ID})
	if err == nil || !strings.Contains(err.Error(), "adopt the sandbox") {
		t.Errorf("started again by a sealed shim: %v", err)
	}
	id, err := procid.Of(c.PID())
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	gone(t, "shim", c.PID())
	o.Logs = nil
	adopted, err := shim.Adopt(ctx, o)
	if err != nil {
		t.Fatalf("adopt a stopped sandbox: %v\n%s", err, read(filepath.Join(o.StateDir, "shim.log")))
	}
	return adopted
}

// execEcho runs a process that echoes its stdin, attached before it starts.
func execEcho(t *testing.T, ctx context.Context, c *shim.Client) {
	t.Helper()
	process := `{"cwd":"/","args":["sh","-c","echo begin; cat; exit 5"],"env":["PATH=/bin"],"user":{"uid":0,"gid":0}}`
	if _, err := c.Task.Exec(ctx, &taskv3.ExecProcessRequest{
		ID: "main", ExecID: "e1", Stdin: "stream:", Stdout: "stream:", Stderr: "stream:",
		Spec: &anypb.Any{Value: []byte(process)},
	}); err != nil {
		t.Fatal(err)
	}
	conn, err := openStream(ctx, c, &shimv1.OpenRequest{ContainerId: "main", ExecId: "e1", Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Task.Start(ctx, &taskv3.StartRequest{ID: "main", ExecID: "e1"}); err != nil {
		t.Fatal(err)
	}
	input := strings.Repeat("all that goes in comes out\n", 10000)
	var out bytes.Buffer
	code, err := stream.Stdio{Stdin: strings.NewReader(input), Stdout: &out}.Run(ctx, conn)
	if err != nil || code != 5 || out.String() != "begin\n"+input {
		t.Errorf("exec: code %d, %d bytes of %d, %v", code, out.Len(), len(input)+6, err)
	}
	// A client that has the exit code may delete the process, but need not.
	_, err = c.Task.Delete(ctx, &taskv3.DeleteRequest{ID: "main", ExecID: "e1"})
	if err != nil && status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}

// openStream opens a byte stream of the pod.
func openStream(ctx context.Context, c *shim.Client, r *shimv1.OpenRequest) (net.Conn, error) {
	res, err := c.Extension.Open(ctx, r)
	if err != nil {
		return nil, err
	}
	return stream.Dial(ctx, shim.StreamAddress(c.StateDir()), res.Token)
}

// execPrepared runs processes that start when their client connects: one that counts its starts, and one that cannot
// run. A third has no client.
func execPrepared(t *testing.T, ctx context.Context, c *shim.Client) {
	t.Helper()
	const counted = "echo run >> /starts; grep -c run /starts; exit 6"
	for id, tc := range map[string]struct {
		args []string
		code int
		out  string
	}{
		"counted": {args: []string{"sh", "-c", counted}, code: 6, out: "1\n"},
		"missing": {args: []string{"no-such-command"}, code: 127, out: "no-such-command"},
		"never":   {args: []string{"sh", "-c", counted}},
	} {
		args, err := json.Marshal(tc.args)
		if err != nil {
			t.Fatal(err)
		}
		process := fmt.Sprintf(`{"cwd":"/","args":%s,"env":["PATH=/bin"],"user":{"uid":0,"gid":0}}`, args)
		_, err = c.Task.Exec(ctx, &taskv3.ExecProcessRequest{
			ID: "main", ExecID: id, Stdout: "stream:", Spec: &anypb.Any{Value: []byte(process)},
		})
		if err != nil {
			t.Fatal(err)
		}
		request := &shimv1.OpenRequest{ContainerId: "main", ExecId: id, Stdout: true, Stderr: true, Start: true}
		if id == "never" {
			if _, err := c.Extension.Open(ctx, request); err != nil {
				t.Error(err)
			}
			continue
		}
		conn, err := openStream(ctx, c, request)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		code, err := stream.Stdio{Stdout: &out, Stderr: &out}.Run(ctx, conn)
		if err != nil || code != tc.code || !strings.Contains(out.String(), tc.out) {
			t.Errorf("%s: code %d, %v, output %q", id, code, err, out.String())
		}
	}
	st, err := c.Task.State(ctx, &taskv3.StateRequest{ID: "main", ExecID: "never"})
	if err != nil || st.Status != task.Status_CREATED {
		t.Errorf("without its client: %v, %v", st, err)
	}
}

// killVM kills QEMU under a container and checks the event and the exit.
func killVM(t *testing.T, ctx context.Context, c *shim.Client, o shim.Options, vm int) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "1.log")
	create(t, ctx, c, o, "second", log, "sleep", "1000")
	if _, err := c.Task.Start(ctx, &taskv3.StartRequest{ID: "second"}); err != nil {
		t.Fatal(err)
	}
	seen := make(chan string, 100)
	watch, stop := context.WithCancel(ctx)
	defer stop()
	follow, err := c.Extension.Events(watch, &shimv1.EventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for e, err := follow.Recv(); err == nil; e, err = follow.Recv() {
			seen <- e.Topic
		}
	}()
	if topic := <-seen; topic != events.TopicReady {
		t.Errorf("first event %s", topic)
	}
	id, err := procid.Of(vm)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for topic := range seen {
		if topic == events.TopicExit {
			break
		}
	}
	exit, err := c.Task.Wait(ctx, &taskv3.WaitRequest{ID: "second"})
	if err != nil || exit.ExitStatus != 137 {
		t.Errorf("exit %v, %v", exit, err)
	}
	st, err := c.Extension.Status(ctx, &shimv1.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range st.Containers {
		if p.Id == "second" && p.Reason != sandbox.ReasonVMKilled {
			t.Errorf("reason %q", p.Reason)
		}
	}
	if _, err := c.Task.Delete(ctx, &taskv3.DeleteRequest{ID: "second"}); err != nil {
		t.Error(err)
	}
}

// create creates a container of the busybox disk with a log.
func create(t *testing.T, ctx context.Context, c *shim.Client, o shim.Options, id, log string, args ...string) {
	t.Helper()
	bundle := filepath.Join(o.StateDir, id)
	if err := os.Mkdir(bundle, 0o755); err != nil {
		t.Fatal(err)
	}
	spec := fmt.Sprintf(`{"ociVersion":"1.0.2","process":{"cwd":"/","args":["%s"],"env":["PATH=/bin"],"user":{"uid":0,"gid":0}},
"root":{"path":"rootfs"},"hostname":"p","mounts":[{"destination":"/proc","type":"proc","source":"proc"}],
"linux":{"namespaces":[{"type":"pid"},{"type":"mount"}]}}`, strings.Join(args, `","`))
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(spec), 0o644); err != nil {
		t.Fatal(err)
	}
	if o.Owner != nil {
		if err := os.Chown(bundle, o.Owner.UID, o.Owner.GID); err != nil {
			t.Fatal(err)
		}
	}
	for name, f := range map[string]*os.File{"log-" + id: openLog(t, log), "disk-" + id: disk(t)} {
		if err := c.SendFile(ctx, name, f); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Task.Create(ctx, &taskv3.CreateTaskRequest{
		ID: id, Bundle: bundle, Stdout: "log:log-" + id,
		Rootfs: []*types.Mount{{Type: "bulkhead-disk", Source: "busybox", Options: []string{"file=disk-" + id}}},
	}); err != nil {
		t.Fatal(err)
	}
}

// disk returns an EROFS disk with busybox.
func disk(t *testing.T) *os.File {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	for _, dir := range []string{"bin", "proc", "dev", "sys", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(busybox.Binary)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin", "busybox"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sh", "cat", "sleep", "usleep", "echo"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "disk")
	if out, err := exec.CommandContext(t.Context(), "mkfs.erofs", path, root).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.erofs: %v\n%s", err, out)
	}
	if err := os.Truncate(path, hypervisor.SlotSize); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func openLog(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

var logLine = regexp.MustCompile(`^\S+ stdout F line (\d+)$`)

func exactlyOnce(t *testing.T, log string, lines int) {
	t.Helper()
	got := strings.Split(strings.TrimSuffix(read(log), "\n"), "\n")
	for i, line := range got {
		m := logLine.FindStringSubmatch(line)
		if m == nil || m[1] != strconv.Itoa(i) {
			t.Fatalf("line %d of the log is %q", i, line)
		}
	}
	if len(got) != lines {
		t.Errorf("the log has %d lines of %d", len(got), lines)
	}
}

func waitFor(t *testing.T, path, text string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(read(path), text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s never held %q: %s", path, text, read(path))
		}
	}
}

func read(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// weight returns a process's memory use.
func weight(pid int) string {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	b, _ := io.ReadAll(f)
	var found []string
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "Pss") || strings.HasPrefix(line, "Rss") {
			found = append(found, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(found, ", ")
}

// cleanUp cleans up, however the test went.
func cleanUp(t *testing.T, o shim.Options) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if t.Failed() {
		t.Logf("shim.log:\n%s", read(filepath.Join(o.StateDir, "shim.log")))
	}
	c, err := shim.Connect(ctx, o.StateDir)
	if err != nil {
		return
	}
	defer c.Close()
	c.Sandbox.ShutdownSandbox(ctx, &sandboxv1.ShutdownSandboxRequest{SandboxID: o.ID})
	gone(t, "shim", c.PID())
}

// sealed checks that every thread of a shim with a running VM has two filters: of confine.Apply and of confine.Seal.
func sealed(t *testing.T, pid int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) == 0 {
		t.Errorf("no threads of the shim: %v", err)
	}
	for _, path := range threads {
		if status := read(path); status != "" && !strings.Contains(status, "\nSeccomp_filters:\t2\n") {
			t.Errorf("%s: %s", path, status)
		}
	}
}

// leavesNothing checks that a process leaves no core dump, and has no file of its cgroup open.
func leavesNothing(t *testing.T, pid int) {
	t.Helper()
	limits := strings.Join(strings.Fields(read(fmt.Sprintf("/proc/%d/limits", pid))), " ")
	if !strings.Contains(limits, "Max core file size 0 0 bytes") {
		t.Errorf("the limits of process %d are %s", pid, limits)
	}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(files) == 0 {
		t.Errorf("no files of process %d: %v", pid, err)
	}
	for _, file := range files {
		if path, _ := os.Readlink(file); strings.HasPrefix(path, "/sys/") { // skip one that was closed meanwhile
			t.Errorf("process %d has %s open", pid, path)
		}
	}
}

// confined checks that QEMU has more filters than its shim: the shim's, that of confine.Start, and its own.
func confined(t *testing.T, o shim.Options, vm int) {
	t.Helper()
	status := read(fmt.Sprintf("/proc/%d/status", vm))
	_, rest, _ := strings.Cut(status, "\nSeccomp_filters:\t")
	line, _, _ := strings.Cut(rest, "\n")
	if filters, err := strconv.Atoi(line); err != nil || filters < 3 {
		t.Errorf("QEMU has %q filters: %v", line, err)
	}
	if log := read(filepath.Join(o.StateDir, "shim.log")); strings.Contains(log, "not wholly confined") {
		t.Logf("shim.log:\n%s", log)
	}
}
