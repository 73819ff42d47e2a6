package steps_test

import (
	"context"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/internal/timeline"
	"github.com/bulkhead-project/bulkhead/shim/steps"
)

// task is a shim's service with a Create that records one step, if it is traced.
type task struct{ taskv3.TTRPCTaskService }

func (task) Create(ctx context.Context, _ *taskv3.CreateTaskRequest) (*taskv3.CreateTaskResponse, error) {
	who := timeline.From(ctx)
	if who == nil {
		return &taskv3.CreateTaskResponse{}, nil
	}
	who.Add(timeline.Step{
		Name: "agent create", Begin: time.Now(), Parts: []timeline.Part{{Name: agentv1.PartCrun}, {Name: "\x1b[2J"}},
	})
	return &taskv3.CreateTaskResponse{Pid: 7}, nil
}

type extension struct {
	shimv1.ExtensionService
	store *steps.Store
}

func (e extension) Steps(_ context.Context, r *shimv1.StepsRequest) (*shimv1.StepsResponse, error) {
	return e.store.Remove(r), nil
}

// TestSteps: a traced call returns its steps once; other calls cost a shim nothing.
func TestSteps(t *testing.T) {
	store := &steps.Store{}
	server, err := ttrpc.NewServer(ttrpc.WithUnaryServerInterceptor(store.Intercept))
	if err != nil {
		t.Fatal(err)
	}
	taskv3.RegisterTTRPCTaskService(server, task{})
	shimv1.RegisterExtensionService(server, extension{store: store})
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(context.Background(), l) }() // ends by Close
	defer server.Close()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var ext shimv1.ExtensionClient
	var names []string
	rpc := ttrpc.NewClient(conn, ttrpc.WithUnaryClientInterceptor(func(
		ctx context.Context, req *ttrpc.Request, resp *ttrpc.Response, _ *ttrpc.UnaryClientInfo, invoke ttrpc.Invoker,
	) error {
		err := steps.Client(ctx, req, ext, func() error { return invoke(ctx, req, resp) })
		for _, kv := range req.GetMetadata() {
			names = append(names, kv.GetValue())
		}
		return err
	}))
	defer rpc.Close()
	ext = shimv1.NewExtensionClient(rpc)
	client := taskv3.NewTTRPCTaskClient(rpc)

	if res, err := client.Create(t.Context(), &taskv3.CreateTaskRequest{}); err != nil || res.GetPid() != 0 || len(names) > 0 {
		t.Errorf("an untraced call: %v, %v, named %v", res, err, names)
	}
	ctx, took := timeline.With(t.Context())
	if res, err := client.Create(ctx, &taskv3.CreateTaskRequest{}); err != nil || res.GetPid() != 7 || len(names) != 1 {
		t.Fatalf("%v, %v, named %v", res, err, names)
	}
	got := took.Steps()
	if len(got) != 1 || got[0].Name != "agent create" || !cmp.Equal(got[0].Parts, []timeline.Part{{Name: agentv1.PartCrun}}) {
		t.Errorf("steps %+v", got)
	}
	if again := store.Remove(&shimv1.StepsRequest{Trace: names[0]}); len(again.GetSteps()) > 0 {
		t.Errorf("twice: %v", again)
	}
}

// liar is a shim that reports arbitrary steps.
type liar struct {
	shimv1.ExtensionClient
	res *shimv1.StepsResponse
}

func (l liar) Steps(context.Context, *shimv1.StepsRequest) (*shimv1.StepsResponse, error) {
	return l.res, nil
}

// TestLiar: whatever a shim reports, the steps are few, known, and within the time of the call.
func TestLiar(t *testing.T) {
	res := &shimv1.StepsResponse{}
	for _, name := range []string{"agent create", "", "agent \x1b[2J", strings.Repeat("x", 1<<20), "agent wait"} {
		for _, usec := range []int64{0, math.MaxInt64, math.MinInt64} {
			for _, at := range []*timestamppb.Timestamp{nil, {Seconds: math.MaxInt64}, timestamppb.Now()} {
				s := &shimv1.Step{Name: name, Begin: at, Microseconds: usec}
				for range 1000 {
					s.Parts = append(s.Parts, &shimv1.Phase{Name: agentv1.PartRoot, Microseconds: usec})
				}
				res.Steps = append(res.Steps, s)
			}
		}
	}
	ctx, took := timeline.With(t.Context())
	began := time.Now()
	if err := steps.Client(ctx, &ttrpc.Request{Method: "Create"}, liar{res: res}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	got := took.Steps()
	if len(got) == 0 || len(got) > timeline.MaxSteps {
		t.Errorf("%d steps", len(got))
	}
	for _, s := range got {
		during := !s.Begin.Before(began) && s.Took >= 0 && !s.Begin.Add(s.Took).After(time.Now())
		if s.Name != "agent create" || !during || len(s.Parts) > timeline.MaxParts {
			t.Errorf("%q at %v for %v, %d parts", s.Name, s.Begin, s.Took, len(s.Parts))
		}
	}
}

// TestForgotten: the oldest unrequested steps are dropped.
func TestForgotten(t *testing.T) {
	var store steps.Store
	call := func(name string) {
		ctx := ttrpc.WithMetadata(t.Context(), ttrpc.MD{"bulkhead-trace": []string{name}})
		_, err := store.Intercept(ctx, nil, nil, func(ctx context.Context, _ func(any) error) (any, error) {
			timeline.From(ctx).Add(timeline.Step{Name: name})
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	call("first")
	call(strings.Repeat("x", 1000))
	for range 64 {
		call("more")
	}
	for name, want := range map[string]int{"first": 0, "more": 1, strings.Repeat("x", 1000): 0} {
		if got := store.Remove(&shimv1.StepsRequest{Trace: name}); len(got.GetSteps()) != want {
			t.Errorf("%.10s: %v", name, got)
		}
	}
}
