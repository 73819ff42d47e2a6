package containerd

import (
	"path/filepath"
	"strings"
	"testing"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"
)

// TestCreateRefuses: bad requests never reach the Runtime, and leave nothing behind.
func TestCreateRefuses(t *testing.T) {
	r, dir := start(t), bundle(t)
	for name, test := range map[string]struct {
		request *taskv3.CreateTaskRequest
		want    codes.Code
	}{
		"an id with a slash": {&taskv3.CreateTaskRequest{ID: "a/b", Bundle: dir}, codes.InvalidArgument},
		"no id":              {&taskv3.CreateTaskRequest{Bundle: dir}, codes.InvalidArgument},
		"a relative bundle":  {&taskv3.CreateTaskRequest{ID: "c", Bundle: "b"}, codes.InvalidArgument},
		"a checkpoint":       {&taskv3.CreateTaskRequest{ID: "c", Bundle: dir, Checkpoint: "/x"}, codes.Unimplemented},
		"unknown options": {
			&taskv3.CreateTaskRequest{ID: "c", Bundle: dir, Options: &anypb.Any{TypeUrl: "x", Value: []byte{1}}}, codes.InvalidArgument,
		},
		"a missing fifo": {
			&taskv3.CreateTaskRequest{ID: "c", Bundle: dir, Stdout: filepath.Join(dir, "none")}, codes.Unknown,
		},
		"streaming": {&taskv3.CreateTaskRequest{ID: "c", Bundle: dir, Stdout: "ttrpc+unix:///x"}, codes.Unimplemented},
	} {
		_, err := r.task.Create(within(t), test.request)
		wantCode(t, name, err, test.want)
		if n := r.called("create c"); n != 0 {
			t.Errorf("%s: the Runtime was called", name)
		}
	}
	r.set("create c", errFake)
	_, err := r.task.Create(within(t), &taskv3.CreateTaskRequest{ID: "c", Bundle: dir})
	if wantCode(t, "a failure", err, codes.Unknown); !strings.Contains(err.Error(), "OCI runtime create failed: broken") {
		t.Errorf("a failure: got %v, want the words that docker looks for", err)
	}
	_, err = r.task.State(within(t), &taskv3.StateRequest{ID: "c"})
	wantCode(t, "after a failure", err, codes.NotFound)
	r.set("create c", nil)
	r.run(t, "c")
	_, err = r.task.Create(within(t), &taskv3.CreateTaskRequest{ID: "c", Bundle: dir})
	wantCode(t, "the same id", err, codes.AlreadyExists)
	if got := r.all(); len(got) != 2 {
		t.Errorf("events %q, want two of the task that runs", got)
	}
}

// TestStates: calls that the state of a process does not allow are refused.
func TestStates(t *testing.T) {
	r, ctx := start(t), within(t)
	code := func(what string, want codes.Code, err error) {
		t.Helper()
		wantCode(t, what, err, want)
	}
	r.run(t, "c")
	code("start a running task", codes.FailedPrecondition, second(r.task.Start(ctx, &taskv3.StartRequest{ID: "c"})))
	code("delete a running task", codes.FailedPrecondition, second(r.task.Delete(ctx, &taskv3.DeleteRequest{ID: "c"})))
	code("resume a running task", codes.FailedPrecondition, second(r.task.Resume(ctx, &taskv3.ResumeRequest{ID: "c"})))
	code("signal 0", codes.InvalidArgument, second(r.task.Kill(ctx, &taskv3.KillRequest{ID: "c"})))
	code("signal 65", codes.InvalidArgument, second(r.task.Kill(ctx, &taskv3.KillRequest{ID: "c", Signal: 65})))
	code("a wide terminal", codes.InvalidArgument, second(r.task.ResizePty(ctx, &taskv3.ResizePtyRequest{ID: "c", Width: 1 << 16})))
	code("no JSON", codes.InvalidArgument, second(r.task.Update(ctx, &taskv3.UpdateTaskRequest{ID: "c"})))
	code("checkpoint", codes.Unimplemented, second(r.task.Checkpoint(ctx, &taskv3.CheckpointTaskRequest{ID: "c"})))
	code("pause", codes.OK, second(r.task.Pause(ctx, &taskv3.PauseRequest{ID: "c"})))
	code("pause again", codes.FailedPrecondition, second(r.task.Pause(ctx, &taskv3.PauseRequest{ID: "c"})))
	code("delete a paused task", codes.FailedPrecondition, second(r.task.Delete(ctx, &taskv3.DeleteRequest{ID: "c"})))

	spec := &anypb.Any{Value: []byte("{}")}
	code("a bad exec id", codes.InvalidArgument, second(r.task.Exec(ctx, &taskv3.ExecProcessRequest{ID: "c", ExecID: "..", Spec: spec})))
	code("no process", codes.InvalidArgument, second(r.task.Exec(ctx, &taskv3.ExecProcessRequest{ID: "c", ExecID: "e"})))
	code("exec", codes.OK, second(r.task.Exec(ctx, &taskv3.ExecProcessRequest{ID: "c", ExecID: "e", Spec: spec})))
	code("the same exec", codes.AlreadyExists, second(r.task.Exec(ctx, &taskv3.ExecProcessRequest{ID: "c", ExecID: "e", Spec: spec})))
	code("kill before start", codes.FailedPrecondition, second(r.task.Kill(ctx, &taskv3.KillRequest{ID: "c", ExecID: "e", Signal: 9})))
	code("resize before start", codes.FailedPrecondition, second(r.task.ResizePty(ctx, &taskv3.ResizePtyRequest{ID: "c", ExecID: "e"})))
	code("close before start", codes.OK, second(r.task.CloseIO(ctx, &taskv3.CloseIORequest{ID: "c", ExecID: "e", Stdin: true})))
	code("no such exec", codes.NotFound, second(r.task.Start(ctx, &taskv3.StartRequest{ID: "c", ExecID: "f"})))
	r.set("exec c/e {}", errFake)
	code("an exec that fails", codes.Unknown, second(r.task.Start(ctx, &taskv3.StartRequest{ID: "c", ExecID: "e"})))
	code("delete it", codes.OK, second(r.task.Delete(ctx, &taskv3.DeleteRequest{ID: "c", ExecID: "e"})))
	code("delete it again", codes.NotFound, second(r.task.Delete(ctx, &taskv3.DeleteRequest{ID: "c", ExecID: "e"})))
	r.exec(t, "c", "g")
	code("delete a running exec", codes.FailedPrecondition, second(r.task.Delete(ctx, &taskv3.DeleteRequest{ID: "c", ExecID: "g"})))
	code("exec again", codes.OK, second(r.task.Exec(ctx, &taskv3.ExecProcessRequest{ID: "c", ExecID: "h", Spec: spec})))

	r.process("c/g").end(Exit{})
	r.process("c").end(Exit{})
	r.await(t, "c", "")
	code("resize a stopped task", codes.FailedPrecondition, second(r.task.ResizePty(ctx, &taskv3.ResizePtyRequest{ID: "c"})))
	code("kill a stopped task", codes.NotFound, second(r.task.Kill(ctx, &taskv3.KillRequest{ID: "c", Signal: 9})))
	code("exec in a stopped task", codes.FailedPrecondition, second(r.task.Start(ctx, &taskv3.StartRequest{ID: "c", ExecID: "h"})))
	r.set("delete c", errFake)
	code("a removal that fails", codes.Unknown, second(r.task.Delete(ctx, &taskv3.DeleteRequest{ID: "c"})))
	r.set("delete c", nil)
	code("a removal", codes.OK, second(r.task.Delete(ctx, &taskv3.DeleteRequest{ID: "c"})))
}
