package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/store"
)

// errs are the errors of the next calls by name.
type errs = map[string][]error

// TestStartContainer checks that a start is repeated if the shim died during it, unless the next shim reports the
// container as started.
func TestStartContainer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		state State
		errs  errs
		says  State
		ends  bool // the VM ends with the call
		want  codes.Code
		then  State
		calls []string
	}{
		{name: "runs", then: ContainerRunning, calls: []string{"Start"}},
		{name: "runs already", state: ContainerRunning, want: codes.FailedPrecondition, then: ContainerRunning},
		{name: "has ended", state: ContainerExited, want: codes.FailedPrecondition, then: ContainerExited},
		{
			name: "shim dies before", errs: errs{"Start": {ttrpc.ErrClosed}}, says: ContainerCreated,
			then: ContainerRunning, calls: []string{"Start", "Status", "Start"},
		},
		{
			name: "shim dies after", errs: errs{"Start": {ttrpc.ErrClosed}}, says: ContainerRunning,
			then: ContainerRunning, calls: []string{"Start", "Status"},
		},
		{
			name: "two shims die", errs: errs{"Start": {ttrpc.ErrClosed}, "Status": {ttrpc.ErrClosed}}, says: ContainerRunning,
			then: ContainerRunning, calls: []string{"Start", "Status", "Start"},
		},
		{
			name: "next shim fails", errs: errs{"Start": {ttrpc.ErrClosed}, "Status": {errInjected}},
			want: codes.Unknown, then: ContainerCreated, calls: []string{"Start", "Status"},
		},
		{
			name: "no next shim", errs: errs{"Start": {ttrpc.ErrClosed}}, ends: true,
			want: codes.FailedPrecondition, then: ContainerCreated, calls: []string{"Start"},
		},
		{
			name: "cannot be run", errs: errs{"Start": {errInjected}}, says: ContainerExited,
			want: codes.Unknown, then: ContainerExited, calls: []string{"Start", "Status"},
		},
		{
			name: "the reason is unknown", errs: errs{"Start": {errInjected}, "Status": {errInjected}},
			want: codes.Unknown, then: ContainerCreated, calls: []string{"Start", "Status"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{errs: tc.errs}
			c := scriptedPod(t, s, or(tc.state, ContainerCreated))
			s.says(c, or(tc.says, ContainerCreated))
			if tc.ends {
				s.on = map[string]func(){"Start": func() {
					if err := c.pod.update(func(r *store.Pod) { r.Exit = "it ended" }); err != nil {
						t.Error(err)
					}
				}}
			}
			if err := c.pod.e.StartContainer(t.Context(), c.ID); codeOf(err) != tc.want {
				t.Errorf("%v", err)
			}
			if got := c.now(); got != tc.then {
				t.Errorf("it is %s then, not %s", got, tc.then)
			}
			s.same(t, tc.calls...)
		})
	}
}

// or returns s, or the default if s is empty.
func or(s, otherwise State) State {
	if s == "" {
		return otherwise
	}
	return s
}

// TestStopContainer checks that the container's own process gets the stop signal, and all processes get SIGKILL
// after the grace period. A stop of a stopped or missing container succeeds.
func TestStopContainer(t *testing.T) {
	t.Parallel()
	asked, killed := []string{"Kill 15", "Wait", "Status"}, []string{"Kill 9 all", "Wait", "Status"}
	both := append(asked[:2:2], killed...)
	late := failure.New(context.DeadlineExceeded, "late")
	for _, tc := range []struct {
		name   string
		state  State
		grace  time.Duration
		paused bool
		errs   errs
		want   codes.Code
		calls  []string
	}{
		{name: "ends when asked", grace: time.Hour, calls: asked},
		{name: "does not end when asked", grace: time.Millisecond, errs: errs{"Wait": {errSilent}}, calls: both},
		{name: "the shim's deadline is first", grace: time.Hour, errs: errs{"Wait": {late}}, calls: both},
		{name: "at once", calls: killed},
		{name: "less than at once", grace: -time.Hour, calls: killed},
		{name: "does not run yet", state: ContainerCreated, grace: time.Hour, calls: killed},
		{name: "has ended", state: ContainerExited, grace: time.Hour},
		{name: "no process any more", grace: time.Hour, errs: errs{"Kill": {failure.New(errdefs.ErrNotFound, "gone")}}, calls: asked},
		{name: "ends by itself", grace: time.Hour, errs: errs{"Kill": {failure.New(errdefs.ErrFailedPrecondition, "ended")}}, calls: asked},
		{name: "cannot be asked", grace: time.Hour, errs: errs{"Kill": {errInjected}}, want: codes.Unknown, calls: asked[:1]},
		{name: "cannot be waited for", grace: time.Hour, errs: errs{"Wait": {errInjected}}, want: codes.Unknown, calls: asked[:2]},
		{name: "the exit is unknown", grace: time.Hour, errs: errs{"Status": {errInjected}}, want: codes.Unknown, calls: asked},
		{name: "does not die", errs: errs{"Wait": {late}}, want: codes.DeadlineExceeded, calls: killed[:2]},
		{name: "cannot be killed", errs: errs{"Kill": {errInjected}}, want: codes.Unknown, calls: killed[:1]},
		{
			name: "the shim dies", grace: time.Hour, errs: errs{"Kill": {ttrpc.ErrClosed, ttrpc.ErrClosed}},
			calls: append([]string{"Kill 15", "Kill 15"}, asked...),
		},
		{name: "paused", grace: time.Hour, paused: true, calls: append([]string{"Resume"}, asked...)},
		{name: "stays paused", paused: true, errs: errs{"Resume": {errInjected}}, want: codes.Unknown, calls: []string{"Resume"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{errs: tc.errs}
			c := scriptedPod(t, s, or(tc.state, ContainerRunning))
			c.pod.paused = tc.paused
			s.says(c, ContainerExited)
			if err := c.pod.e.StopContainer(t.Context(), c.ID, tc.grace); codeOf(err) != tc.want {
				t.Errorf("%v", err)
			}
			if got := c.now(); (got == ContainerExited) != (tc.want == codes.OK) {
				t.Errorf("it is %s then", got)
			}
			s.same(t, tc.calls...)
		})
	}
}

// TestStopContainerGivesUp checks that a cancelled stop returns the context's error and kills nothing.
func TestStopContainerGivesUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := &scripted{errs: errs{"Wait": {errSilent}}, on: map[string]func(){"Wait": cancel}}
	c := scriptedPod(t, s, ContainerRunning)
	if err := c.stop(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	s.same(t, "Kill 15", "Wait")
}

// TestSignalContainer checks the range of signals, and that there must be a process.
func TestSignalContainer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		state  State
		signal int
		errs   errs
		want   codes.Code
		calls  []string
	}{
		{name: "the first", signal: 1, calls: []string{"Kill 1"}},
		{name: "the last", signal: 64, calls: []string{"Kill 64"}},
		{name: "none", signal: 0, want: codes.InvalidArgument},
		{name: "one too many", signal: 65, want: codes.InvalidArgument},
		{name: "does not run", state: ContainerCreated, signal: 1, want: codes.FailedPrecondition},
		{name: "fails", signal: 9, errs: errs{"Kill": {errInjected}}, want: codes.Unknown, calls: []string{"Kill 9"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{errs: tc.errs}
			c := scriptedPod(t, s, or(tc.state, ContainerRunning))
			running, err := c.pod.e.Running(c.ID)
			if err == nil {
				err = running.Signal(t.Context(), tc.signal)
			}
			if codeOf(err) != tc.want {
				t.Errorf("%v", err)
			}
			s.same(t, tc.calls...)
		})
	}
}

// TestRemoveContainer checks that a failed removal keeps the container for the next try.
func TestRemoveContainer(t *testing.T) {
	t.Parallel()
	kill := []string{"Kill 9 all", "Wait", "Status"}
	all := append(kill[:3:3], "Delete")
	for _, tc := range []struct {
		name   string
		errs   errs
		noShim bool
		stays  bool
		calls  []string
	}{
		{name: "runs", calls: all},
		{name: "the guest knows nothing of it", errs: errs{"Delete": {failure.New(errdefs.ErrNotFound, "gone")}}, calls: all},
		{name: "has no shim", noShim: true},
		{name: "cannot be killed", errs: errs{"Kill": {errInjected}}, stays: true, calls: kill[:1]},
		{name: "the guest does not forget it", errs: errs{"Delete": {errInjected}}, stays: true, calls: all},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{errs: tc.errs}
			c := scriptedPod(t, s, ContainerRunning)
			s.says(c, ContainerExited)
			if tc.noShim {
				c.pod.conn = nil
			}
			e := c.pod.e
			if err := e.RemoveContainer(t.Context(), c.ID); (err != nil) != tc.stays {
				t.Errorf("%v", err)
			}
			s.same(t, tc.calls...)
			stored, _, err := e.store.Containers(c.pod.id)
			if err != nil || (len(stored) > 0) != tc.stays || (c.pod.container(c.ID) != nil) != tc.stays {
				t.Errorf("records of the container: got %d, error %v, want some: %t", len(stored), err, tc.stays)
			}
			if err := errors.Join(e.RemoveContainer(t.Context(), c.ID), e.RemoveContainer(t.Context(), c.ID)); err != nil {
				t.Errorf("once more: %v", err)
			}
			s.calls()
			if err := c.remove(t.Context()); err != nil {
				t.Errorf("removed meanwhile: %v", err)
			}
			s.same(t)
		})
	}
}

// TestRemoveContainerOfAPodThatStops checks that a container counts as removed with its VM, once the pod has stopped.
func TestRemoveContainerOfAPodThatStops(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		called string // when the stop begins
		errs   errs
		end    func(p *pod) // the last step of the stop
		fails  bool
		stays  bool
	}{
		{name: "it cannot be killed", called: "Kill", errs: errs{"Kill": {errInjected}}, end: phase(store.Stopped)},
		{name: "it cannot be deleted", called: "Delete", errs: errs{"Delete": {errInjected}}, end: phase(store.Stopped)},
		{name: "it is deleted meanwhile", called: "Delete", end: phase(store.Stopped)},
		{name: "the pod is removed", called: "Delete", errs: errs{"Delete": {errInjected}}, end: func(p *pod) { p.gone = true }, stays: true},
		{name: "the stop fails", called: "Delete", errs: errs{"Delete": {errInjected}}, end: func(*pod) {}, fails: true, stays: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{errs: tc.errs}
			c := scriptedPod(t, s, ContainerRunning)
			s.says(c, ContainerExited)
			p, stopped := c.pod, false
			s.on = map[string]func(){tc.called: func() {
				p.op <- struct{}{}
				p.mu.Lock()
				defer p.mu.Unlock()
				p.ending = true
				time.AfterFunc(50*time.Millisecond, func() {
					p.mu.Lock()
					defer p.mu.Unlock()
					tc.end(p)
					stopped = true
					p.done()
				})
			}}
			if err := c.remove(t.Context()); (err != nil) != tc.fails {
				t.Errorf("remove: %v", err)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if !stopped {
				t.Error("the removal did not wait for the stop")
			}
			if (p.containers[c.ID] != nil) != tc.stays {
				t.Errorf("the container is there: %t, want %t", !tc.stays, tc.stays)
			}
		})
	}
}

// phase returns a stop that brings a pod to a phase.
func phase(to store.Phase) func(p *pod) { return func(p *pod) { p.record.Phase = to } }

// TestReopenLog checks that a new log file is removed if the shim does not accept it, and that an old one stays.
func TestReopenLog(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		state  State
		errs   errs
		noLog  bool
		noShim bool
		path   string // elsewhere
		there  bool   // existed before
		want   codes.Code
		calls  int
		left   bool
	}{
		{name: "moved away", calls: 2, left: true},
		{name: "still there", there: true, calls: 2, left: true},
		{name: "has no log", noLog: true, want: codes.FailedPrecondition},
		{name: "has no shim", noShim: true, want: codes.FailedPrecondition},
		{name: "does not run", state: ContainerExited, want: codes.FailedPrecondition},
		{name: "no place of clients'", path: "/nowhere/log", want: codes.Unknown},
		{name: "cannot be sent", errs: errs{"SendFile": {errInjected}}, want: codes.Unknown, calls: 1},
		{name: "is refused", errs: errs{"ReopenLog": {errInjected}}, want: codes.Unknown, calls: 2},
		{name: "is refused and was there", errs: errs{"ReopenLog": {errInjected}}, there: true, want: codes.Unknown, calls: 2, left: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{errs: tc.errs}
			c := scriptedPod(t, s, or(tc.state, ContainerRunning))
			path := filepath.Join(t.TempDir(), "log")
			if tc.there {
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if c.Log = path; tc.path != "" {
				c.Log = tc.path
			}
			if tc.noLog {
				c.Log = ""
			}
			if tc.noShim {
				c.pod.conn = nil
			}
			err := c.pod.e.ReopenLog(t.Context(), c.ID)
			if (err != nil) != (tc.want != codes.OK) || tc.want != codes.Unknown && codeOf(err) != tc.want {
				t.Errorf("%v", err)
			}
			s.same(t, []string{"SendFile log-" + c.ID, "ReopenLog log-" + c.ID}[:tc.calls]...)
			if _, err := os.Stat(path); (err == nil) != tc.left {
				t.Errorf("the file: %v", err)
			}
		})
	}
}

// TestNoContainer checks the errors for a missing container, except where the call has nothing to do.
func TestNoContainer(t *testing.T) {
	t.Parallel()
	e := bareEngine(t)
	ctx := t.Context()
	for name, do := range map[string]func(id string) error{
		"start":   func(id string) error { return e.StartContainer(ctx, id) },
		"stop":    func(id string) error { return e.StopContainer(ctx, id, 0) },
		"remove":  func(id string) error { return e.RemoveContainer(ctx, id) },
		"running": func(id string) error { _, err := e.Running(id); return err },
		"reopen":  func(id string) error { return e.ReopenLog(ctx, id) },
		"update":  func(id string) error { return e.UpdateContainer(ctx, id, nil, nil) },
		"copy":    func(id string) error { _, err := e.Copy(ctx, CopyRequest{ContainerID: id}); return err },
		"look":    func(id string) error { _, err := e.Container(id); return err },
		"record":  func(id string) error { return e.SetContainerRecord(id, nil) },
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
}
