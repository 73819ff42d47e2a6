package engine

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
)

// TestPause checks that pause and resume are idempotent, and that a failed call does not change the state.
func TestPause(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		paused bool
		resume bool
		errs   errs
		noShim bool
		code   codes.Code
		then   bool
		times  uint64
		calls  []string
	}{
		{name: "pause", then: true, times: 1, calls: []string{"Pause"}},
		{name: "pause again", paused: true, then: true},
		{name: "pause fails", errs: errs{"Pause": {errInjected}}, code: codes.Unknown, times: 1, calls: []string{"Pause"}},
		{name: "pause without a shim", noShim: true, code: codes.FailedPrecondition},
		{name: "resume", resume: true, paused: true, calls: []string{"Resume"}},
		{name: "resume again", resume: true},
		{
			name: "resume fails", resume: true, paused: true, errs: errs{"Resume": {errInjected}},
			code: codes.Unknown, then: true, calls: []string{"Resume"},
		},
		{name: "resume without a shim", resume: true, paused: true, noShim: true, code: codes.FailedPrecondition, then: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{errs: tc.errs}
			p := scriptedPod(t, s, ContainerRunning).pod
			p.paused = tc.paused
			if tc.noShim {
				p.conn = nil
			}
			do := p.e.PausePod
			if tc.resume {
				do = p.e.ResumePod
			}
			if err := do(t.Context(), p.id); codeOf(err) != tc.code {
				t.Errorf("%v", err)
			}
			if times, now := p.e.Pauses(p.id); times != tc.times || now != tc.then {
				t.Errorf("paused %d times, now %v", times, now)
			}
			s.same(t, tc.calls...)
			busy, cancel := context.WithCancel(t.Context())
			cancel()
			if err := p.acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := do(busy, p.id); !tc.noShim && codeOf(err) != codes.Canceled {
				t.Errorf("beside another operation: %v", err)
			}
			p.done()
		})
	}
}

// TestFacts checks that the shim's status takes precedence over the record, and that the record serves without a
// shim.
func TestFacts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		status *shimv1.StatusResponse
		errs   errs
		noShim bool
		limits hostcgroup.Limits
		clone  string
		state  string
		memory int64
		cpus   float64
	}{
		{name: "lives", status: &shimv1.StatusResponse{State: "running", MemoryMib: 2}, state: "running", memory: 2},
		{name: "reports no size", status: &shimv1.StatusResponse{State: "running"}, state: "running", memory: 1},
		{name: "reports a wrong size", status: &shimv1.StatusResponse{State: "running", MemoryMib: -1}, state: "running", memory: 1},
		{name: "fails", errs: errs{"Status": {errInjected}}, state: "stopped", memory: 1},
		{name: "has no shim", noShim: true, state: "stopped", memory: 1},
		{name: "is held", noShim: true, limits: hostcgroup.Limits{Quota: 50, Period: 100}, state: "stopped", memory: 1, cpus: 0.5},
		{name: "is a clone", noShim: true, clone: "key", state: "stopped", memory: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := scriptedPod(t, &scripted{errs: tc.errs, status: tc.status}, ContainerRunning).pod
			p.record.MemoryMiB, p.record.Template, p.record.Cgroup.Limits = 1, tc.clone, tc.limits
			if tc.noShim {
				p.conn = nil
			}
			f, err := p.e.Facts(t.Context(), p.id)
			if err != nil || f.State != tc.state || f.MemoryMiB != tc.memory || f.Cgroup.CPUs != tc.cpus || f.Clone != (tc.clone != "") {
				t.Errorf("%+v, %v", f, err)
			}
		})
	}
}

// TestNoPod checks the errors for a missing pod, except where the call has nothing to do.
func TestNoPod(t *testing.T) {
	t.Parallel()
	e := bareEngine(t)
	ctx := t.Context()
	for name, do := range map[string]func(id string) error{
		"pause":   func(id string) error { return e.PausePod(ctx, id) },
		"resume":  func(id string) error { return e.ResumePod(ctx, id) },
		"look":    func(id string) error { _, err := e.Pod(id); return err },
		"facts":   func(id string) error { _, err := e.Facts(ctx, id); return err },
		"usage":   func(id string) error { _, err := e.Meter(id); return err },
		"console": func(id string) error { _, err := e.Console(ctx, id); return err },
		"create":  func(id string) error { _, err := e.CreateContainer(ctx, id, ContainerRequest{}); return err },
		"stop":    func(id string) error { return e.StopPod(ctx, id) },
		"remove":  func(id string) error { return e.RemovePod(ctx, id) },
	} {
		want := codes.NotFound
		if name == "stop" || name == "remove" {
			want = codes.OK
		}
		if err := do("gone"); codeOf(err) != want {
			t.Errorf("%s: %v", name, err)
		}
		if err := do(""); codeOf(err) != codes.InvalidArgument {
			t.Errorf("%s, without an id: %v", name, err)
		}
	}
	if times, now := e.Pauses("gone"); times != 0 || now {
		t.Errorf("paused %d times, %v", times, now)
	}
}

// TestContainerRecord checks that a door's record changes only if it can be stored.
func TestContainerRecord(t *testing.T) {
	t.Parallel()
	c := scriptedPod(t, &scripted{}, ContainerRunning)
	if err := c.pod.e.SetContainerRecord(c.ID, []byte(`"new"`)); err != nil || string(c.Record) != `"new"` {
		t.Errorf("%s, %v", c.Record, err)
	}
	stored, _, err := c.pod.e.store.Containers(c.pod.id)
	if err != nil || len(stored) != 1 || string(stored[0].Record) != `"new"` {
		t.Errorf("%+v, %v", stored, err)
	}
	if err := c.pod.e.store.DropPod(c.pod.id); err != nil {
		t.Fatal(err)
	}
	c.ID = "no id"
	c.pod.containers[c.ID] = c
	if err := c.pod.e.SetContainerRecord(c.ID, []byte(`"lost"`)); err == nil || string(c.Record) != `"new"` {
		t.Errorf("not stored: %s, %v", c.Record, err)
	}
}
