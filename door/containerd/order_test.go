package containerd

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/bulkhead-project/bulkhead/door/containerd/bootstrap"
)

// TestExitAfterStart: the exit of a process that ends at once is published after its start.
func TestExitAfterStart(t *testing.T) {
	for range 20 {
		r := start(t)
		release := r.hang("start c")
		if _, err := r.task.Create(within(t), &taskv3.CreateTaskRequest{ID: "c", Bundle: bundle(t)}); err != nil {
			t.Fatal(err)
		}
		started := make(chan error, 1)
		go func() { started <- second(r.task.Start(within(t), &taskv3.StartRequest{ID: "c"})) }()
		r.waitFor(t, "start c")
		r.process("c").end(Exit{Status: 1, OOM: true})
		release()
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		r.await(t, "c", "")
		want := []string{"/tasks/create c", "/tasks/start c", "/tasks/oom c", "/tasks/exit c 1"}
		if got := r.all(); !slices.Equal(got, want) {
			t.Fatalf("events %q, want %q", got, want)
		}
	}
}

// waitFor waits until the Runtime is called.
func (r *rig) waitFor(t *testing.T, call string) {
	t.Helper()
	for ctx := within(t); r.called(call) == 0; {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s was not called", call)
		}
	}
}

// TestExecsEndFirst: the exits of execs that end with their container are published before the container's.
func TestExecsEndFirst(t *testing.T) {
	usual := execsGrace
	execsGrace = time.Minute
	defer func() { execsGrace = usual }()
	r := start(t)
	r.run(t, "c")
	r.exec(t, "c", "e")
	r.process("c").end(Exit{Status: 137})
	r.process("c/e").end(Exit{Status: 137})
	r.await(t, "c", "")
	got := r.all()
	if want := []string{"/tasks/exit e 137", "/tasks/exit c 137"}; !slices.Equal(got[len(got)-2:], want) {
		t.Errorf("events %q, want %q at the end", got, want)
	}
}

// TestExecThatStays: an exec that does not end delays the exit of its container only for a moment.
func TestExecThatStays(t *testing.T) {
	r := start(t)
	r.run(t, "c")
	r.exec(t, "c", "stays")
	r.process("c").end(Exit{})
	r.await(t, "c", "")
}

// TestHungExec: one exec that hangs delays no other call, and its own caller can leave.
func TestHungExec(t *testing.T) {
	r := start(t)
	r.run(t, "c")
	defer r.hang("exec c/hangs {}")()
	spec := &anypb.Any{Value: []byte("{}")}
	if _, err := r.task.Exec(within(t), &taskv3.ExecProcessRequest{ID: "c", ExecID: "hangs", Spec: spec}); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(within(t), 50*time.Millisecond)
	defer cancel()
	err := second(r.task.Start(short, &taskv3.StartRequest{ID: "c", ExecID: "hangs"}))
	if !errors.Is(err, context.DeadlineExceeded) {
		wantCode(t, "the exec that hangs", err, codes.DeadlineExceeded)
	}
	r.exec(t, "c", "e")
	r.run(t, "d")
	for _, err := range []error{
		second(r.task.State(within(t), &taskv3.StateRequest{ID: "c"})),
		second(r.task.State(within(t), &taskv3.StateRequest{ID: "c", ExecID: "hangs"})),
		second(r.task.Stats(within(t), &taskv3.StatsRequest{ID: "c"})),
		second(r.task.Pids(within(t), &taskv3.PidsRequest{ID: "c"})),
		second(r.task.Pause(within(t), &taskv3.PauseRequest{ID: "c"})),
		second(r.task.Kill(within(t), &taskv3.KillRequest{ID: "c", Signal: 9})),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	r.await(t, "c", "")
	if err := second(r.task.Delete(within(t), &taskv3.DeleteRequest{ID: "c"})); err != nil {
		t.Error(err)
	}
}

// TestDeleteWhileCreated: a removal ends a creation that hangs, as containerd asks for after its client has left.
func TestDeleteWhileCreated(t *testing.T) {
	r := start(t)
	defer r.hang("create c")()
	created := make(chan error, 1)
	go func() {
		created <- second(r.task.Create(within(t), &taskv3.CreateTaskRequest{ID: "c", Bundle: bundle(t)}))
	}()
	r.waitFor(t, "create c")
	_, err := r.task.State(within(t), &taskv3.StateRequest{ID: "c"})
	wantCode(t, "the state meanwhile", err, codes.NotFound)
	_, err = r.task.Delete(within(t), &taskv3.DeleteRequest{ID: "c"})
	wantCode(t, "the removal", err, codes.NotFound)
	wantCode(t, "the creation", <-created, codes.Canceled)
	if _, err := r.task.Shutdown(within(t), &taskv3.ShutdownRequest{}); err != nil || r.shutdowns.Load() != 1 {
		t.Errorf("Shutdown: got %v, and %d ends", err, r.shutdowns.Load())
	}
	if got := r.all(); len(got) != 0 {
		t.Errorf("events %q, want none", got)
	}
}

// TestDeleteCreated: a task that was never started is killed by its removal, and its exit published before.
func TestDeleteCreated(t *testing.T) {
	r := start(t)
	if _, err := r.task.Create(within(t), &taskv3.CreateTaskRequest{ID: "c", Bundle: bundle(t)}); err != nil {
		t.Fatal(err)
	}
	if res, err := r.task.Delete(within(t), &taskv3.DeleteRequest{ID: "c"}); err != nil || res.ExitStatus != 137 {
		t.Errorf("got %v, %v, want 137", res, err)
	}
	if got, want := r.all(), []string{"/tasks/create c", "/tasks/exit c 137", "/tasks/delete c"}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// TestLostProcess: a process with an unknown end counts as killed.
func TestLostProcess(t *testing.T) {
	r := start(t)
	r.run(t, "c")
	p := r.process("c")
	p.err = errFake
	p.end(Exit{})
	if got := int(r.await(t, "c", "")); got != bootstrap.Lost {
		t.Errorf("got %d, want %d", got, bootstrap.Lost)
	}
}
