package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/ttrpc"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/engine/networks"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/engine/unwind"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/test/measuretest"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// scriptedShims returns scripted results for Connect and Adopt. The last one of each repeats.
type scriptedShims struct {
	link.Shims
	connect, adopt []error
	shim           *scripted
	adopted        int
}

func (s *scriptedShims) Connect(context.Context, string) (*link.Conn, error) {
	if s.shim == nil {
		return nil, shim.ErrNotRunning
	}
	return s.shim.conn(), next(&s.connect)
}

func (s *scriptedShims) Start(context.Context, shim.Options) (*link.Conn, error) {
	return s.shim.conn(), nil
}

func (s *scriptedShims) Adopt(context.Context, shim.Options) (*link.Conn, error) {
	s.adopted++
	return s.shim.conn(), next(&s.adopt)
}

// next returns the next error and keeps the last one.
func next(errs *[]error) error {
	if len(*errs) == 0 {
		return nil
	}
	err := (*errs)[0]
	if len(*errs) > 1 {
		*errs = (*errs)[1:]
	}
	return err
}

// reapEngine returns an engine without pods, with those shims.
func reapEngine(t *testing.T, shims *scriptedShims) *Engine {
	t.Helper()
	e := bareEngine(t)
	e.shims, e.o.Users = shims, filepath.Join(e.o.Roots.Data, "users") // exists until the engine is closed
	e.kinds.Networks = networks.New(func(network.Kind) (network.Provider, error) { return network.None{}, nil })
	e.unwinder.Shims, e.unwinder.Users, e.unwinder.Networks = shims, e.o.Users, e.kinds.Networks
	return e
}

// idOf returns an id that begins with a digit.
func idOf(digit string) string { return digit + strings.Repeat("0", 63) }

// putPod stores a pod with that id and phase under the name "key/ID".
func putPod(t *testing.T, e *Engine, id string, phase store.Phase) *store.Pod {
	t.Helper()
	r := &store.Pod{ID: id, Key: "key/" + id, Phase: phase}
	if err := errors.Join(e.store.Reserve(r.Key, id), e.store.MakePod(id), e.store.PutPod(r)); err != nil {
		t.Fatal(err)
	}
	return r
}

// putState creates the state that a new shim needs.
func putState(t *testing.T, e *Engine, id string, names ...string) {
	t.Helper()
	if err := os.MkdirAll(e.store.StateDir(id), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(e.store.StateDir(id), name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReapNames checks that names without a pod are released, unless the pod is being created or cannot be undone.
func TestReapNames(t *testing.T) {
	t.Parallel()
	e := reapEngine(t, &scriptedShims{})
	e.unwinder.Networks = networks.New(func(network.Kind) (network.Provider, error) { return nil, errInjected })
	left := map[string]bool{}
	for i, kind := range []string{"made", "stuck", "half", "made", "stuck", "half"} {
		id := idOf(fmt.Sprint(i))
		if err := e.store.Reserve("key/"+id, id); err != nil {
			t.Fatal(err)
		}
		left[id] = kind != "half"
		switch kind {
		case "made":
			e.starting(id, true)
		case "stuck":
			err := e.store.MakePod(id)
			if err == nil {
				_, err = e.store.Journal(id).Before(t.Context(), unwind.Network, unwind.Attached{Kind: network.KindUser}, atomicfile.Volatile)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	r, err := e.Reap(t.Context())
	if err != nil || r.Removed != 2 || r.Adopted != 0 || len(r.Failed) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	names, err := e.store.Names()
	if err != nil || len(names) != 4 {
		t.Errorf("%v, %v", names, err)
	}
	for _, n := range names {
		if !left[n.ID] {
			t.Errorf("%s is left", n.Key)
		}
	}
}

// TestReapPods checks the result of Reap for pods of each phase.
func TestReapPods(t *testing.T) {
	t.Parallel()
	s := &scripted{status: &shimv1.StatusResponse{State: "running"}}
	e := reapEngine(t, &scriptedShims{shim: s, connect: []error{shim.ErrNotRunning}})
	held := map[string]bool{}
	for i, phase := range []store.Phase{
		store.Stopped, store.Starting, store.Starting, store.Removing, store.Ready, store.Starting, store.Ready, store.Starting,
	} {
		id := idOf(fmt.Sprint(i))
		putPod(t, e, id, phase)
		switch i {
		case 4, 6:
			putState(t, e, id, layout.VMConfig, layout.Sandbox)
		case 5:
			e.starting(id, true)
		}
		held[id] = phase == store.Stopped || phase == store.Ready
	}
	damaged := idOf("a")
	putPod(t, e, damaged, store.Ready)
	if err := os.WriteFile(filepath.Join(e.store.Dir(damaged), "pod.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := e.Reap(t.Context())
	if err != nil || r.Adopted != 2 || r.Removed != 5 || len(r.Failed) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, p := range e.all() {
		if !held[p.id] {
			t.Errorf("holds %s", p.id)
		}
		delete(held, p.id)
	}
	for id, is := range held {
		if is {
			t.Errorf("does not hold %s", id)
		}
	}
	names, err := e.store.Names()
	if err != nil || len(names) != 4 {
		t.Errorf("names: %v, %v", names, err)
	}
	if again, err := e.Reap(t.Context()); err != nil || again.Adopted+again.Removed+len(again.Failed) > 0 {
		t.Errorf("once more: %+v, %v", again, err)
	}
}

// TestReapFails checks that a pod that cannot be adopted is reported and held, and that a pod with its old shim
// does not count.
func TestReapFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		connect error
		adopt   error
		failed  int
	}{
		{name: "its shim lives"},
		{name: "its shim cannot be asked", connect: errInjected, failed: 1},
		{name: "no other can be started", connect: shim.ErrNotRunning, adopt: errInjected, failed: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{status: &shimv1.StatusResponse{State: "running"}}
			e := reapEngine(t, &scriptedShims{shim: s, connect: []error{tc.connect}, adopt: []error{tc.adopt}})
			var tally measuretest.Tally
			e.o.Observer = &tally
			id := store.NewID()
			putPod(t, e, id, store.Ready)
			putState(t, e, id, layout.VMConfig, layout.Sandbox)
			r, err := e.Reap(t.Context())
			if err != nil || r.Adopted+r.Removed != 0 || len(r.Failed) != tc.failed || len(e.all()) != 1 {
				t.Errorf("%+v, %v, %d pods", r, err, len(e.all()))
			}
			if n := tally.Counts()[measure.LeakFailed]; n != tc.failed {
				t.Errorf("%d failures are counted", n)
			}
		})
	}
}

// TestConnect checks that a pod's shim must answer, and that a new one starts only if there was none.
func TestConnect(t *testing.T) {
	t.Parallel()
	dead, whole := shim.ErrNotRunning, []string{layout.VMConfig, layout.Sandbox}
	port := []store.Port{{HostIP: "127.0.0.1", PodPort: 80}}
	for _, tc := range []struct {
		name           string
		connect, adopt []error
		errs           errs
		state          []string
		fails, fresh   bool
		exit           bool
		conn           bool
		adopted        int
		calls          []string
	}{
		{name: "it lives", state: whole, conn: true, calls: []string{"Status"}},
		{name: "the state is unknown", connect: []error{errInjected}, state: whole, fails: true},
		{name: "it does not answer", errs: errs{"Status": {errInjected}}, state: whole, fails: true, calls: []string{"Status"}},
		{
			name: "it dies just then", errs: errs{"Status": {ttrpc.ErrClosed}}, connect: []error{nil, dead}, state: whole,
			conn: true, fresh: true, adopted: 1, calls: []string{"Status", "Status", "SendFile port", "Publish"},
		},
		{
			name: "it is dead", connect: []error{dead}, state: whole,
			conn: true, fresh: true, adopted: 1, calls: []string{"Status", "SendFile port", "Publish"},
		},
		{
			name: "a port is taken", connect: []error{dead}, state: whole, errs: errs{"SendFile": {errInjected}},
			conn: true, fresh: true, adopted: 1, calls: []string{"Status", "SendFile port"},
		},
		{
			name: "the next one dies too", connect: []error{dead}, errs: errs{"Status": {ttrpc.ErrClosed}}, state: whole,
			fails: true, adopted: 1, calls: []string{"Status"},
		},
		{name: "no other can be started", connect: []error{dead}, adopt: []error{errInjected}, state: whole, fails: true, adopted: 1},
		{name: "the host was booted", connect: []error{dead}, exit: true},
		{name: "the sandbox has ended", connect: []error{dead}, state: whole[:1], exit: true},
		{name: "the VM is gone", connect: []error{dead}, state: whole[1:], exit: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{status: &shimv1.StatusResponse{State: "running"}, errs: tc.errs}
			shims := &scriptedShims{shim: s, connect: tc.connect, adopt: tc.adopt}
			e := reapEngine(t, shims)
			r := putPod(t, e, store.NewID(), store.Ready)
			r.Ports = port
			putState(t, e, r.ID, tc.state...)
			p := newPod(e, r)
			open := &container{pod: p, Stored: store.Stored{Container: store.Container{ID: store.NewID()}}}
			if err := e.store.PutContainer(p.id, &open.Container); err != nil {
				t.Fatal(err)
			}
			p.containers[open.ID], p.stuck = open, errInjected
			fresh, err := p.connect(t.Context())
			if (err != nil) != tc.fails || fresh != tc.fresh || shims.adopted != tc.adopted || (p.conn != nil) != tc.conn {
				t.Errorf("fresh %v, %d adopted, connected %v: %v", fresh, shims.adopted, p.conn != nil, err)
			}
			if (p.stuck == nil) != tc.conn {
				t.Errorf("it is stuck: %v", p.stuck)
			}
			if exit := p.snapshot().Exit; (exit != "") != tc.exit || (open.Exit != nil) != tc.exit {
				t.Errorf("it ended: %q, its container: %v", exit, open.Exit)
			}
			calls := s.calls()
			for i, call := range calls {
				if strings.HasPrefix(call, "SendFile port-") {
					calls[i] = "SendFile port"
				}
			}
			if !slices.Equal(calls, tc.calls) {
				t.Errorf("calls %q, want %q", calls, tc.calls)
			}
		})
	}
}

// TestConnectGivesUp checks that connect returns when its context ends.
func TestConnectGivesUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := &scripted{errs: errs{"Status": {ttrpc.ErrClosed}}, on: map[string]func(){"Status": cancel}}
	e := reapEngine(t, &scriptedShims{shim: s})
	p := newPod(e, putPod(t, e, store.NewID(), store.Ready))
	if _, err := p.connect(ctx); !errors.Is(err, ttrpc.ErrClosed) {
		t.Errorf("%v", err)
	}
	s.same(t, "Status")
}

// TestDiscard checks that all names of a pod are released by its id, and that other names stay.
func TestDiscard(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{"by its key": true, "by its id": false} {
		e := reapEngine(t, &scriptedShims{})
		r, other := putPod(t, e, idOf("1"), store.Ready), putPod(t, e, idOf("2"), store.Ready)
		key := ""
		if known {
			key = r.Key
		}
		if err := e.discard(t.Context(), r.ID, key); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		names, err := e.store.Names()
		if err != nil || len(names) != 1 || names[0].Key != other.Key {
			t.Errorf("%s: left %v, %v", name, names, err)
		}
		if err := e.discard(t.Context(), "no id", ""); err == nil {
			t.Errorf("%s: removed something other than a pod", name)
		}
	}
}

// TestLostJournal checks that a pod with a lost journal is not removed while its shim lives.
func TestLostJournal(t *testing.T) {
	t.Parallel()
	s := &scripted{}
	e := reapEngine(t, &scriptedShims{shim: s})
	r := putPod(t, e, idOf("1"), store.Ready)
	if err := e.discard(t.Context(), r.ID, r.Key); err != nil {
		t.Fatal(err)
	}
	if calls := s.calls(); !slices.Contains(calls, "ShutdownSandbox") || !slices.Contains(calls, "Ended") {
		t.Errorf("calls to the shim: %q", calls)
	}
}

// TestLoad checks that containers without a complete record are dropped, and the others loaded.
func TestLoad(t *testing.T) {
	t.Parallel()
	e := reapEngine(t, &scriptedShims{})
	p := newPod(e, putPod(t, e, store.NewID(), store.Stopped))
	dir := filepath.Join(e.store.Dir(p.id), "containers")
	for id, do := range map[string]func(path string) error{
		idOf("1"): func(string) error { return nil },
		idOf("2"): os.Remove,
		idOf("3"): func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
	} {
		err := e.store.PutContainer(p.id, &store.Container{ID: id, Record: json.RawMessage(`"r"`)})
		if err := errors.Join(err, do(filepath.Join(dir, id, "container.json"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.load(); err != nil || len(p.containers) != 1 || p.container(idOf("1")) == nil {
		t.Errorf("%v, %v", p.containers, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := e.reapPod(t.Context(), p.id); err == nil {
		t.Error("unreadable containers count as no containers")
	}
}

// TestReapStopped checks that the containers of a stopped pod get exits.
func TestReapStopped(t *testing.T) {
	t.Parallel()
	e := reapEngine(t, &scriptedShims{})
	id := store.NewID()
	putPod(t, e, id, store.Stopped)
	if err := e.store.PutContainer(id, &store.Container{ID: idOf("1")}); err != nil {
		t.Fatal(err)
	}
	if what, err := e.reapPod(t.Context(), id); err != nil || what != found {
		t.Errorf("%v, %v", what, err)
	}
	c, err := e.Container(idOf("1"))
	if err != nil || c.State != ContainerExited || c.Exit.Code != exitKilled || c.Exit.Reason != sandbox.ReasonVMKilled {
		t.Errorf("%+v, %v", c, err)
	}
	if what, err := e.reapPod(t.Context(), store.NewID()); err != nil || what != nothing {
		t.Errorf("one that is gone: %v, %v", what, err)
	}
}

// TestHalfMadeContainers checks that unfinished containers of a killed engine are dropped, unless the shim knows
// them or they have run.
func TestHalfMadeContainers(t *testing.T) {
	t.Parallel()
	made, half, ran := idOf("1"), idOf("2"), idOf("3")
	s := &scripted{status: &shimv1.StatusResponse{
		State: "running", Containers: []*shimv1.ContainerStatus{{Id: made, State: string(sandbox.Ready)}},
	}}
	e := reapEngine(t, &scriptedShims{shim: s})
	id := store.NewID()
	putPod(t, e, id, store.Ready)
	putState(t, e, id, layout.VMConfig, layout.Sandbox)
	for _, ctr := range []*store.Container{{ID: made, Key: "m"}, {ID: half, Key: "h"}, {ID: ran, Key: "r", Started: time.Now()}} {
		if err := e.store.PutContainer(id, ctr); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	stored, _, err := e.store.Containers(id)
	var left []string
	for _, ctr := range stored {
		left = append(left, ctr.ID)
	}
	slices.Sort(left)
	if err != nil || !slices.Equal(left, []string{made, ran}) || len(e.all()[0].containers) != 2 {
		t.Errorf("left %v, %v", left, err)
	}
}
