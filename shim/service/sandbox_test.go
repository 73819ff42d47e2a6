package service_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/service"
)

// TestWaitTellsHowItEnded: the exit status of a killed VM differs from that of a stopped one.
func TestWaitTellsHowItEnded(t *testing.T) {
	for reason, want := range map[string]uint32{
		sandbox.ReasonVMKilled: 137, sandbox.ReasonOOMKilled: 137, sandbox.ReasonStopped: 0, "": 0,
	} {
		r := start(t)
		r.fake.reason = reason
		res, err := r.sandbox.WaitSandbox(t.Context(), &sandboxv1.WaitSandboxRequest{SandboxID: "pod"})
		if err != nil || res.ExitStatus != want {
			t.Errorf("%q: %v, %v", reason, res, err)
		}
	}
}

// TestAnotherPodsID: calls with another pod's id are refused.
func TestAnotherPodsID(t *testing.T) {
	r, ctx := start(t), t.Context()
	_, stop := r.sandbox.StopSandbox(ctx, &sandboxv1.StopSandboxRequest{SandboxID: "x"})
	_, wait := r.sandbox.WaitSandbox(ctx, &sandboxv1.WaitSandboxRequest{SandboxID: "x"})
	_, shutdown := r.sandbox.ShutdownSandbox(ctx, &sandboxv1.ShutdownSandboxRequest{SandboxID: "x"})
	for name, err := range map[string]error{"stop": stop, "wait": wait, "shutdown": shutdown} {
		wantCode(t, name, err, codes.NotFound)
	}
	if calls := r.fake.noted(); len(calls) != 0 {
		t.Errorf("calls %q", calls)
	}
}

// TestStopIsAsPatientAsItsCaller: the wait for a stop ends with the caller's timeout; without one it has no bound.
func TestStopIsAsPatientAsItsCaller(t *testing.T) {
	for timeout, want := range map[uint32]error{0: nil, 5: context.DeadlineExceeded} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.stopped = make(chan struct{})
			services := service.New(service.Options{ID: "pod", Sandbox: f})
			began := time.Now()
			end := time.AfterFunc(time.Minute, func() { close(f.stopped) })
			_, err := services.Pod().StopSandbox(t.Context(), &sandboxv1.StopSandboxRequest{SandboxID: "pod", TimeoutSecs: timeout})
			took := time.Since(began)
			if want == nil && (err != nil || took != time.Minute) {
				t.Errorf("without a bound: %v after %v", err, took)
			}
			if want != nil {
				wantCode(t, "with a bound", err, codes.DeadlineExceeded)
				if took != 5*time.Second {
					t.Errorf("it took %v", took)
				}
			}
			if end.Stop() {
				close(f.stopped)
			}
			services.Close()
		})
	}
}

// TestStatusOfAPausedPod: a paused pod is ready, a stopped one is not.
func TestStatusOfAPausedPod(t *testing.T) {
	for state, want := range map[sandbox.State]string{
		sandbox.Running: "SANDBOX_READY", sandbox.Paused: "SANDBOX_READY", sandbox.Stopped: "SANDBOX_NOTREADY",
	} {
		r := start(t)
		r.fake.state = state
		st, err := r.sandbox.SandboxStatus(t.Context(), &sandboxv1.SandboxStatusRequest{SandboxID: "pod"})
		if err != nil || st.State != want {
			t.Errorf("%s: %v, %v", state, st, err)
		}
	}
}

// TestShutdownOfTheLast: containerd requests the shim's end after every container. The shim ends after the last one, or
// at once with Now.
func TestShutdownOfTheLast(t *testing.T) {
	for name, tc := range map[string]struct{ left, now, want bool }{
		"one is left": {left: true}, "the last": {want: true}, "now": {left: true, now: true, want: true},
	} {
		r := start(t)
		if tc.left {
			r.create(t, "c")
		}
		_, err := r.task.Shutdown(t.Context(), &taskv3.ShutdownRequest{Now: tc.now})
		if err != nil || len(r.shutdown) == 1 != tc.want {
			t.Errorf("%s: %d times, %v", name, len(r.shutdown), err)
		}
	}
}

// TestDeleteForgetsAContainersProcesses: deleting a container drops the names of its own processes and of no others.
func TestDeleteForgetsAContainersProcesses(t *testing.T) {
	r, ctx := start(t), t.Context()
	for _, id := range []string{"a", "b"} {
		r.create(t, id)
		_, err := r.task.Exec(ctx, &taskv3.ExecProcessRequest{ID: id, ExecID: "e", Stdout: "stream:", Spec: &anypb.Any{Value: []byte("{}")}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.task.Delete(ctx, &taskv3.DeleteRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if n := r.services.Remembered(); n != 2 {
		t.Errorf("%d processes are remembered", n)
	}
	for _, exec := range []string{"", "e"} {
		st, err := r.task.State(ctx, &taskv3.StateRequest{ID: "b", ExecID: exec})
		if err != nil || st.Stdout != "stream:" {
			t.Errorf("of b %q: %v, %v", exec, st, err)
		}
	}
}

// TestCreateTakesItsFiles: a container gets the disks of its root and its images in the right places. If one is
// missing, all are closed.
func TestCreateTakesItsFiles(t *testing.T) {
	r, ctx := start(t), t.Context()
	if err := os.WriteFile(filepath.Join(r.dir, "config.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	create := func(id string) (sent []*os.File, pid uint32, err error) {
		var roots []*types.Mount
		for _, name := range []string{"root", "one", "two"} {
			f, err := os.CreateTemp(r.dir, name)
			if err != nil {
				t.Fatal(err)
			}
			if id != "short" || name != "two" {
				err = r.files.Add(name, f)
			}
			if err != nil {
				t.Fatal(err)
			}
			sent = append(sent, f)
			roots = append(roots, &types.Mount{Type: "bulkhead-disk", Source: name, Options: []string{"file=" + name}})
		}
		res, err := r.task.Create(ctx, &taskv3.CreateTaskRequest{ID: id, Bundle: r.dir, Rootfs: roots})
		return sent, res.GetPid(), err
	}
	sent, pid, err := create("c")
	if err != nil || pid != 33 {
		t.Fatalf("process %d, %v", pid, err)
	}
	c := r.fake.procs[sandbox.Process{Container: "c"}].config
	if c.Root != (containerv1.Image{ID: "root"}) || c.RootFile != sent[0] || len(c.Volumes) != 2 ||
		c.Volumes[0] != (sandbox.Volume{ID: "one", Disk: sent[1]}) || c.Volumes[1] != (sandbox.Volume{ID: "two", Disk: sent[2]}) {
		t.Errorf("made of %+v", c)
	}
	sent, _, err = create("short")
	wantCode(t, "a disk that was not sent", err, codes.NotFound)
	for _, f := range sent[:2] {
		if err := f.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s stays open", f.Name())
		}
	}
	sent[2].Close()
}

// TestSpecsAreBounded: a specification of the maximum length is accepted, a longer one is not.
func TestSpecsAreBounded(t *testing.T) {
	r := start(t)
	for length, want := range map[int]codes.Code{3 << 20: codes.OK, 3<<20 + 1: codes.InvalidArgument} {
		spec := `"` + strings.Repeat("x", length-2) + `"`
		if err := os.WriteFile(filepath.Join(r.dir, "config.json"), []byte(spec), 0o600); err != nil {
			t.Fatal(err)
		}
		r.file(t, "disk")
		_, err := r.task.Create(t.Context(), &taskv3.CreateTaskRequest{
			ID: "c", Bundle: r.dir, Rootfs: []*types.Mount{{Type: "bulkhead-disk", Source: "i", Options: []string{"file=disk"}}},
		})
		wantCode(t, "the length", err, want)
	}
}

// TestConsoleEnds: closing the console ends its followers.
func TestConsoleEnds(t *testing.T) {
	r := start(t)
	if err := os.WriteFile(filepath.Join(r.dir, "console"), []byte("booting"), 0o600); err != nil {
		t.Fatal(err)
	}
	conn := r.open(t, &shimv1.OpenRequest{Kind: shimv1.OpenRequest_CONSOLE})
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, len("booting"))); err != nil {
		t.Fatal(err)
	}
	r.console.Close()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); err != nil || len(b) != 0 {
		t.Errorf("read %q, %v", b, err)
	}
}
