package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/sandbox"
)

// call records a call and returns f.fails.
func (f *fake) call(format string, args ...any) error {
	f.note(format, args...)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fails
}

func (f *fake) WaitBooted(context.Context) error { return f.call("wait booted") }
func (f *fake) WaitStopped(context.Context) (string, error) {
	return f.reason, f.call("wait stopped")
}
func (f *fake) Pause(context.Context) error                       { return f.call("pause") }
func (f *fake) Resume(context.Context) error                      { return f.call("resume") }
func (f *fake) PauseContainer(_ context.Context, id string) error { return f.call("pause %s", id) }
func (f *fake) ResumeContainer(_ context.Context, id string) error {
	return f.call("resume %s", id)
}

func (f *fake) Resize(_ context.Context, limits agentv1.PodLimits, memoryMiB int) error {
	return f.call("resize the pod to %d bytes, %d MiB", limits.MemoryBytes, memoryMiB)
}

func (f *fake) GrowVolume(_ context.Context, name string, bytes int64) error {
	return f.call("grow %s to %d bytes", name, bytes)
}

func (f *fake) ReleaseVolumes(context.Context) error { return f.call("release volumes") }

func (f *fake) UpdateContainer(_ context.Context, id string, resources []byte) error {
	return f.call("update %s to %s", id, resources)
}

func (f *fake) Pids(_ context.Context, id string) ([]int, error) {
	return []int{1, 7}, f.call("pids %s", id)
}

func (f *fake) ReadFile(_ context.Context, id, path string, limit int) ([]byte, error) {
	return []byte("content"), f.call("read %s of %s, %d", path, id, limit)
}

func (f *fake) WriteFiles(_ context.Context, c agentv1.Files) (agentv1.FilesState, error) {
	return agentv1.FilesState{Digest: "d"}, f.call("write %d files of %s", len(c.Entries), c.Volume)
}

func (f *fake) CloseInput(_ context.Context, p sandbox.Process) error {
	return f.call("close the input of %s", p.Container)
}

func (f *fake) ReopenLog(_ context.Context, id string, file *os.File) error {
	if f.fails == nil {
		f.taken = append(f.taken, file)
	}
	return f.call("reopen the log of %s", id)
}

// TestCallsReachTheSandbox: each call reaches the sandbox with its arguments. The sandbox's error reaches the caller
// with the code that clients match.
func TestCallsReachTheSandbox(t *testing.T) {
	for want, call := range map[string]func(r *rig, ctx context.Context) error{
		"wait booted": func(r *rig, ctx context.Context) error {
			_, err := r.extension.Status(ctx, &shimv1.StatusRequest{Booted: true})
			return err
		},
		"pause": func(r *rig, ctx context.Context) error {
			_, err := r.extension.Pause(ctx, &shimv1.PauseRequest{})
			return err
		},
		"resume": func(r *rig, ctx context.Context) error {
			_, err := r.extension.Resume(ctx, &shimv1.ResumeRequest{})
			return err
		},
		"pause c": func(r *rig, ctx context.Context) error {
			_, err := r.task.Pause(ctx, &taskv3.PauseRequest{ID: "c"})
			return err
		},
		"resume c": func(r *rig, ctx context.Context) error {
			_, err := r.task.Resume(ctx, &taskv3.ResumeRequest{ID: "c"})
			return err
		},
		"pids c": func(r *rig, ctx context.Context) error {
			res, err := r.task.Pids(ctx, &taskv3.PidsRequest{ID: "c"})
			if err == nil && (len(res.Processes) != 2 || res.Processes[1].Pid != 7) {
				return errors.New("not the processes")
			}
			return err
		},
		"read /f of c, 1048576": func(r *rig, ctx context.Context) error { // the maximum for a read
			res, err := r.extension.ReadFile(ctx, &shimv1.ReadFileRequest{ContainerId: "c", Path: "/f", Limit: 1 << 20})
			if err == nil && string(res.Data) != "content" {
				return errors.New("not the content")
			}
			return err
		},
		"write 2 files of v": func(r *rig, ctx context.Context) error { // the maximum for a write
			res, err := r.extension.Files(ctx, filesOf(2<<20))
			if err == nil && res.Digest != "d" {
				return errors.New("not the digest")
			}
			return err
		},
		"close the input of c": func(r *rig, ctx context.Context) error {
			_, err := r.task.CloseIO(ctx, &taskv3.CloseIORequest{ID: "c", Stdin: true})
			return err
		},
		"update c to {}": func(r *rig, ctx context.Context) error { return r.update(ctx, "{}") },
		"update c to []": func(r *rig, ctx context.Context) error { return r.update(ctx, "[]") },
		"resize the pod to 9 bytes, 640 MiB": func(r *rig, ctx context.Context) error {
			return r.resizePod(ctx, `{"memoryBytes":9}`)
		},
		"grow v to 77 bytes": func(r *rig, ctx context.Context) error { return r.grow(ctx, 77) },
		"release volumes": func(r *rig, ctx context.Context) error {
			_, err := r.extension.ReleaseVolumes(ctx, &shimv1.ReleaseVolumesRequest{})
			return err
		},
		"wait stopped": func(r *rig, ctx context.Context) error {
			_, err := r.sandbox.WaitSandbox(ctx, &sandboxv1.WaitSandboxRequest{SandboxID: "pod"})
			return err
		},
		"stop": func(r *rig, ctx context.Context) error {
			_, err := r.sandbox.StopSandbox(ctx, &sandboxv1.StopSandboxRequest{SandboxID: "pod"})
			return err
		},
	} {
		t.Run(want, func(t *testing.T) {
			r := start(t)
			wantCode(t, "granted", call(r, t.Context()), codes.OK)
			if got := r.fake.noted(); !slices.Equal(got, []string{want}) {
				t.Errorf("calls %q", got)
			}
			r.fake.fails = errdefs.ErrFailedPrecondition
			wantCode(t, "refused", call(r, t.Context()), codes.FailedPrecondition)
		})
	}
}

// filesOf returns two files of size bytes in all, including their names.
func filesOf(size int) *shimv1.FilesRequest {
	raw, err := json.Marshal(agentv1.Files{Volume: "v", Entries: []agentv1.FileEntry{{Path: "a"}, {Path: "b", Data: make([]byte, size-2)}}})
	if err != nil {
		panic(err)
	}
	return &shimv1.FilesRequest{Files: raw}
}

// update changes the limits of a container.
func (r *rig) update(ctx context.Context, resources string) error {
	_, err := r.task.Update(ctx, &taskv3.UpdateTaskRequest{ID: "c", Resources: &anypb.Any{Value: []byte(resources)}})
	return err
}

// resizePod changes the limits of the pod.
func (r *rig) resizePod(ctx context.Context, limits string) error {
	_, err := r.extension.Resize(ctx, &shimv1.ResizeRequest{Limits: []byte(limits), MemoryMib: 640})
	return err
}

// grow grows a volume.
func (r *rig) grow(ctx context.Context, bytes int64) error {
	_, err := r.extension.GrowVolume(ctx, &shimv1.GrowVolumeRequest{Volume: "v", Bytes: bytes})
	return err
}

// TestCallsOutOfBounds: invalid requests never reach the sandbox.
func TestCallsOutOfBounds(t *testing.T) {
	r, ctx := start(t), t.Context()
	for name, call := range map[string]func() error{
		"a file too long": func() error {
			_, err := r.extension.ReadFile(ctx, &shimv1.ReadFileRequest{Limit: 1<<20 + 1})
			return err
		},
		"files too long": func() error { _, err := r.extension.Files(ctx, filesOf(2<<20+1)); return err },
		"files not JSON": func() error {
			_, err := r.extension.Files(ctx, &shimv1.FilesRequest{Files: []byte("{")})
			return err
		},
		"ports not JSON": func() error {
			_, err := r.extension.Listening(ctx, &shimv1.ListeningRequest{Known: []byte("{")})
			return err
		},
		"a size of nothing":   func() error { return r.grow(ctx, 0) },
		"limits not JSON":     func() error { return r.update(ctx, "{") },
		"no limits of a pod":  func() error { return r.resizePod(ctx, `"none"`) },
		"a terminal too wide": func() error { return r.resize(ctx, 0x10000, 1) },
		"a terminal too high": func() error { return r.resize(ctx, 1, 0x10000) },
		"signal 0":            func() error { return r.kill(ctx, 0) },
		"signal 65":           func() error { return r.kill(ctx, 65) },
		"port 0":              func() error { return r.forward(ctx, 0) },
		"port 65536":          func() error { return r.forward(ctx, 0x10000) },
		"publish port 0": func() error {
			_, err := r.extension.Publish(ctx, &shimv1.PublishRequest{File: "x"})
			return err
		},
	} {
		wantCode(t, name, call(), codes.InvalidArgument)
	}
	if calls := r.fake.noted(); len(calls) != 0 {
		t.Errorf("calls %q", calls)
	}
}

// TestCallsAtTheirBounds: the largest and smallest valid values are accepted.
func TestCallsAtTheirBounds(t *testing.T) {
	r, ctx := start(t), t.Context()
	for _, signal := range []uint32{1, 64} {
		r.create(t, "c")
		wantCode(t, "the signal", r.kill(ctx, signal), codes.OK)
		gone, err := r.task.Delete(ctx, &taskv3.DeleteRequest{ID: "c"})
		if err != nil || gone.ExitStatus != 128+signal {
			t.Errorf("signal %d: %v, %v", signal, gone, err)
		}
	}
	wantCode(t, "the largest terminal", r.resize(ctx, 0xffff, 0xffff), codes.OK)
	wantCode(t, "port 65535", r.forward(ctx, 0xffff), codes.OK)
	_, err := r.extension.Publish(ctx, &shimv1.PublishRequest{File: "not sent", PodPort: 0xffff})
	wantCode(t, "publish port 65535", err, codes.NotFound)
}

func (r *rig) resize(ctx context.Context, width, height uint32) error {
	_, err := r.task.ResizePty(ctx, &taskv3.ResizePtyRequest{ID: "c", Width: width, Height: height})
	return err
}

func (r *rig) kill(ctx context.Context, signal uint32) error {
	_, err := r.task.Kill(ctx, &taskv3.KillRequest{ID: "c", Signal: signal})
	return err
}

func (r *rig) forward(ctx context.Context, port uint32) error {
	_, err := r.extension.Open(ctx, &shimv1.OpenRequest{Kind: shimv1.OpenRequest_PORT_FORWARD, Port: port})
	return err
}

// TestSentFiles: a call takes the files that were sent for it; a failed call closes them.
func TestSentFiles(t *testing.T) {
	r, ctx := start(t), t.Context()
	send := func(name string) *os.File {
		f, err := os.Create(filepath.Join(r.dir, name))
		if err == nil {
			err = r.files.Add(name, f)
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	closed := func(f *os.File) bool { return errors.Is(f.Close(), os.ErrClosed) }
	reopen := func() error {
		_, err := r.extension.ReopenLog(ctx, &shimv1.ReopenLogRequest{ContainerId: "c", File: "log"})
		return err
	}
	wantCode(t, "a log that was not sent", reopen(), codes.NotFound)
	log := send("log")
	wantCode(t, "a log", reopen(), codes.OK)
	if got := r.fake.taken; !slices.Equal(got, []*os.File{log}) || closed(log) {
		t.Errorf("taken: %v", got)
	}
	r.fake.fails = errdefs.ErrFailedPrecondition
	log = send("log")
	wantCode(t, "a log that is refused", reopen(), codes.FailedPrecondition)
	if !closed(log) {
		t.Error("a log that was refused is open")
	}
}
