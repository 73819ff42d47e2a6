package containerd

import (
	"fmt"
	"slices"
	"testing"
	"time"

	eventsapi "github.com/containerd/containerd/api/events"
	taskv2 "github.com/containerd/containerd/api/runtime/task/v2"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/bulkhead-project/bulkhead/door/containerd/bootstrap"
)

// TestTaskVersions: the messages of version 2 have the same fields in version 3, so that one set of methods serves both.
func TestTaskVersions(t *testing.T) {
	two, three := taskv2.File_runtime_task_v2_shim_proto, taskv3.File_runtime_task_v3_shim_proto
	methods := two.Services().Get(0).Methods()
	if methods.Len() != len((&Services{}).taskMethods()) || methods.Len() != three.Services().Get(0).Methods().Len() {
		t.Errorf("%d methods in version 2, %d in version 3", methods.Len(), three.Services().Get(0).Methods().Len())
	}
	for i := range two.Messages().Len() {
		old := two.Messages().Get(i)
		later := three.Messages().ByName(old.Name())
		if later == nil {
			t.Errorf("version 3 has no %s", old.Name())
			continue
		}
		for j := range old.Fields().Len() {
			a := old.Fields().Get(j)
			b := later.Fields().ByNumber(a.Number())
			if b == nil || a.Name() != b.Name() || a.Kind() != b.Kind() || a.Cardinality() != b.Cardinality() {
				t.Errorf("%s.%s: %v in version 3", old.Name(), a.Name(), b)
				continue
			}
			if a.Kind() == protoreflect.MessageKind && a.Message().Name() != b.Message().Name() {
				t.Errorf("%s.%s: %s in version 3, was %s", old.Name(), a.Name(), b.Message().Name(), a.Message().Name())
			}
		}
	}
}

// TestVersion2: a client of version 2 gets the same task.
func TestVersion2(t *testing.T) {
	r := start(t)
	task := taskv2.NewTTRPCTaskClient(r.client)
	created, err := task.Create(within(t), &taskv2.CreateTaskRequest{ID: "c", Bundle: bundle(t), Terminal: true})
	if err != nil {
		t.Fatal(err)
	}
	state, err := task.State(within(t), &taskv2.StateRequest{ID: "c"})
	if err != nil || state.Pid != created.Pid || state.Status != tasktypes.Status_CREATED || !state.Terminal {
		t.Errorf("State: got %v, %v", state, err)
	}
	if _, err := task.State(within(t), &taskv2.StateRequest{ID: "d"}); err == nil {
		t.Error("State of no task: got nil")
	}
}

// TestLife follows a task from its creation to its end.
func TestLife(t *testing.T) {
	r, ctx := start(t), within(t)
	dir := bundle(t)
	o := &runcoptions.Options{SystemdCgroup: true}
	options, err := anypb.New(o)
	if err != nil {
		t.Fatal(err)
	}
	created, err := r.task.Create(ctx, &taskv3.CreateTaskRequest{ID: "c", Bundle: dir, Options: options})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.created["c"]; got.Bundle != dir || !got.SystemdCgroup || got.Stdin != nil || got.Stdout != nil {
		t.Errorf("Create: got %+v", got)
	}
	if created.Pid != 101 {
		t.Errorf("Create: got pid %d, want 101", created.Pid)
	}
	if e := bootstrap.ReadExit(dir); e.PID != 101 || e.Status != bootstrap.Lost {
		t.Errorf("the record of a created task: got %+v", e)
	}
	if res, err := r.task.Start(ctx, &taskv3.StartRequest{ID: "c"}); err != nil || res.Pid != 101 {
		t.Errorf("Start: got %v, %v", res, err)
	}
	r.exec(t, "c", "e")
	r.process("c/e").end(Exit{Status: 3})
	if got := r.await(t, "c", "e"); got != 3 {
		t.Errorf("Wait for the exec: got %d, want 3", got)
	}
	deleted, err := r.task.Delete(ctx, &taskv3.DeleteRequest{ID: "c", ExecID: "e"})
	if err != nil || deleted.ExitStatus != 3 || deleted.Pid != 102 {
		t.Errorf("Delete of the exec: got %v, %v", deleted, err)
	}
	for _, call := range []error{
		second(r.task.Pause(ctx, &taskv3.PauseRequest{ID: "c"})), second(r.task.Resume(ctx, &taskv3.ResumeRequest{ID: "c"})),
	} {
		if call != nil {
			t.Error(call)
		}
	}
	r.process("c").end(Exit{Status: 7})
	if got := r.await(t, "c", ""); got != 7 {
		t.Errorf("Wait: got %d, want 7", got)
	}
	if e := bootstrap.ReadExit(dir); e.PID != 101 || e.Status != 7 || !e.At.Equal(time.Unix(1700000000, 0)) {
		t.Errorf("the record of an ended task: got %+v", e)
	}
	state, err := r.task.State(ctx, &taskv3.StateRequest{ID: "c"})
	if err != nil || state.Status != tasktypes.Status_STOPPED || state.ExitStatus != 7 || state.ExitedAt.AsTime().Unix() != 1700000000 {
		t.Errorf("State: got %v, %v", state, err)
	}
	if _, err := r.task.Shutdown(ctx, &taskv3.ShutdownRequest{ID: "c"}); err != nil || r.shutdowns.Load() != 0 {
		t.Errorf("Shutdown with a task: got %v, and %d ends", err, r.shutdowns.Load())
	}
	deleted, err = r.task.Delete(ctx, &taskv3.DeleteRequest{ID: "c"})
	if err != nil || deleted.ExitStatus != 7 || deleted.Pid != 101 || r.called("delete c") != 1 {
		t.Errorf("Delete: got %v, %v", deleted, err)
	}
	_, err = r.task.Delete(ctx, &taskv3.DeleteRequest{ID: "c"})
	wantCode(t, "Delete again", err, codes.NotFound)
	if _, err := r.task.Shutdown(ctx, &taskv3.ShutdownRequest{ID: "c"}); err != nil || r.shutdowns.Load() != 1 {
		t.Errorf("Shutdown: got %v, and %d ends", err, r.shutdowns.Load())
	}
	want := []string{
		"/tasks/create c", "/tasks/start c", "/tasks/exec-added e", "/tasks/exec-started e", "/tasks/exit e 3",
		"/tasks/paused c", "/tasks/resumed c", "/tasks/exit c 7", "/tasks/delete c",
	}
	if got := r.all(); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	if create, ok := r.bodies[0].(*eventsapi.TaskCreate); !ok || create.Pid != 101 || create.Bundle != dir {
		t.Errorf("create: got %v", r.bodies[0])
	}
}

func second[T any](_ T, err error) error { return err }

// TestPids: the processes are the host's, with the ids of execs. A stopped task keeps its first one.
func TestPids(t *testing.T) {
	r, ctx := start(t), within(t)
	r.run(t, "c")
	r.exec(t, "c", "e")
	res, err := r.task.Pids(ctx, &taskv3.PidsRequest{ID: "c"})
	if err != nil || len(res.Processes) != 2 || res.Processes[0].Pid != 101 || res.Processes[1].Pid != 102 {
		t.Fatalf("got %v, %v", res, err)
	}
	var details runcoptions.ProcessDetails
	if err := res.Processes[1].Info.UnmarshalTo(&details); err != nil || details.ExecID != "e" {
		t.Errorf("got %v, %v, want exec e", &details, err)
	}
	connect, err := r.task.Connect(ctx, &taskv3.ConnectRequest{ID: "c"})
	if err != nil || connect.TaskPid != 101 || connect.ShimPid == 0 {
		t.Errorf("Connect: got %v, %v", connect, err)
	}
	if connect, err = r.task.Connect(ctx, &taskv3.ConnectRequest{ID: "none"}); err != nil || connect.TaskPid != 0 {
		t.Errorf("Connect without a task: got %v, %v", connect, err)
	}
	r.process("c/e").end(Exit{})
	r.process("c").end(Exit{})
	r.await(t, "c", "")
	if res, err := r.task.Pids(ctx, &taskv3.PidsRequest{ID: "c"}); err != nil || len(res.Processes) != 1 {
		t.Errorf("after the end: got %v, %v", res, err)
	}
	_, err = r.task.Pids(ctx, &taskv3.PidsRequest{ID: "none"})
	wantCode(t, "Pids without a task", err, codes.NotFound)
}

// TestCalls: calls reach the Runtime, and its errors come back with the codes that containerd's clients match.
func TestCalls(t *testing.T) {
	json := &anypb.Any{Value: []byte(`{"memory":{"limit":1}}`)}
	for call, do := range map[string]func(r *rig) error{
		"signal c 15": func(r *rig) error {
			return second(r.task.Kill(within(t), &taskv3.KillRequest{ID: "c", Signal: 15}))
		},
		"kill all c 9": func(r *rig) error {
			return second(r.task.Kill(within(t), &taskv3.KillRequest{ID: "c", Signal: 9, All: true}))
		},
		"signal c/e 1": func(r *rig) error {
			return second(r.task.Kill(within(t), &taskv3.KillRequest{ID: "c", ExecID: "e", Signal: 1, All: true}))
		},
		"resize c 80x25": func(r *rig) error {
			return second(r.task.ResizePty(within(t), &taskv3.ResizePtyRequest{ID: "c", Width: 80, Height: 25}))
		},
		"resize c/e 65535x1": func(r *rig) error {
			return second(r.task.ResizePty(within(t), &taskv3.ResizePtyRequest{ID: "c", ExecID: "e", Width: 65535, Height: 1}))
		},
		`update c {"memory":{"limit":1}}`: func(r *rig) error {
			return second(r.task.Update(within(t), &taskv3.UpdateTaskRequest{ID: "c", Resources: json}))
		},
		"stats c": func(r *rig) error {
			res, err := r.task.Stats(within(t), &taskv3.StatsRequest{ID: "c"})
			if err == nil && res.Stats.TypeUrl != "io.containerd.cgroups.v2.Metrics" {
				err = fmt.Errorf("type %s", res.Stats.TypeUrl)
			}
			return err
		},
		"pause c": func(r *rig) error { return second(r.task.Pause(within(t), &taskv3.PauseRequest{ID: "c"})) },
	} {
		r := start(t)
		r.run(t, "c")
		r.exec(t, "c", "e")
		for err, code := range map[error]codes.Code{
			errdefs.ErrNotFound: codes.NotFound, errdefs.ErrUnavailable: codes.Unavailable, errFake: codes.Unknown,
			fmt.Errorf("a reason: %w", errUnsupported): codes.Unimplemented,
		} {
			r.set(call, err)
			wantCode(t, call+" that fails", do(r), code)
		}
		r.set(call, nil)
		wantCode(t, call, do(r), codes.OK)
		if n := r.called(call); n != 5 {
			t.Errorf("%s was called %d times, want 5", call, n)
		}
	}
}
