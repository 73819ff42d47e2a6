package engine

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/store"
)

// TestReconcile checks that exits are taken over once, for containers and not for their exec processes, and that
// the end of the VM ends all containers.
func TestReconcile(t *testing.T) {
	t.Parallel()
	ended := timestamppb.New(time.Unix(1000, 0))
	for _, tc := range []struct {
		name   string
		state  string
		reason string
		words  []*shimv1.ContainerStatus
		was    State
		then   State
		code   int
		exit   string // the pod's
		paused bool
		at     time.Time
	}{
		{name: "nothing new", state: "running", was: ContainerRunning, then: ContainerRunning},
		{name: "is paused", state: "paused", was: ContainerRunning, then: ContainerRunning, paused: true},
		{
			name: "has started", state: "running", was: ContainerCreated, then: ContainerRunning,
			words: []*shimv1.ContainerStatus{{Id: "x", State: "running", StartedAt: ended}, {State: "running", StartedAt: ended}},
		},
		{
			name: "has ended", state: "running", was: ContainerRunning, then: ContainerExited, code: 3, at: ended.AsTime(),
			words: []*shimv1.ContainerStatus{{State: "stopped", ExitCode: 3, ExitedAt: ended}},
		},
		{
			name: "has ended some time", state: "running", was: ContainerRunning, then: ContainerExited, code: 3,
			words: []*shimv1.ContainerStatus{{State: "stopped", ExitCode: 3}},
		},
		{
			name: "ended before", state: "running", was: ContainerExited, then: ContainerExited,
			words: []*shimv1.ContainerStatus{{State: "stopped", ExitCode: 3}},
		},
		{
			name: "a command has ended, and then it", state: "running", was: ContainerRunning, then: ContainerExited, code: 4,
			words: []*shimv1.ContainerStatus{{ExecId: "e", State: "stopped", ExitCode: 3}, {State: "stopped", ExitCode: 4}},
		},
		{name: "the VM has ended", state: "stopped", was: ContainerRunning, then: ContainerExited, code: 137, exit: "the VM has ended"},
		{name: "the VM has crashed", state: "stopped", reason: "crash", was: ContainerRunning, then: ContainerExited, code: 137, exit: "crash"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{status: &shimv1.StatusResponse{State: tc.state, ExitReason: tc.reason, Containers: tc.words}}
			c := scriptedPod(t, s, tc.was)
			for _, w := range tc.words {
				if w.Id == "" {
					w.Id = c.ID
				}
			}
			for range 2 {
				if err := c.pod.reconcile(t.Context(), c.pod.conn); err != nil {
					t.Error(err)
				}
			}
			if got := c.now(); got != tc.then || c.pod.isPaused() != tc.paused || c.pod.snapshot().Exit != tc.exit {
				t.Errorf("it is %s, paused %v, the pod ended: %q", got, c.pod.isPaused(), c.pod.snapshot().Exit)
			}
			if c.Exit == nil || tc.was == ContainerExited {
				return
			}
			if c.Exit.Code != tc.code || !tc.at.IsZero() && !c.Exit.At.Equal(tc.at) || tc.at.IsZero() && time.Since(c.Exit.At) > time.Hour {
				t.Errorf("%+v", c.Exit)
			}
		})
	}
}

// TestLastWords checks that a termination message is written only to the host's existing file, and that the exit is
// recorded in any case.
func TestLastWords(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		errs errs
		host func(path string) error
		want string
		open bool // the container has no exit yet
		ends bool // the engine
	}{
		{name: "there", host: empty, want: "words"},
		{name: "no file on the host", host: func(string) error { return nil }},
		{name: "a link on the host", host: func(path string) error { return os.Symlink("/nowhere", path) }},
		{name: "unreadable", host: empty, errs: errs{"ReadFile": {errInjected}}},
		{name: "the engine ends", host: empty, errs: errs{"ReadFile": {errInjected}}, open: true, ends: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := &scripted{errs: tc.errs}
			if tc.ends {
				s.on = map[string]func(){"ReadFile": cancel}
			}
			c := scriptedPod(t, s, ContainerRunning)
			path := filepath.Join(t.TempDir(), "words")
			if err := tc.host(path); err != nil {
				t.Fatal(err)
			}
			c.Termination = &store.Termination{Container: "/words", Host: path}
			s.says(c, ContainerExited)
			if err := c.pod.reconcile(ctx, c.pod.conn); err != nil {
				t.Error(err)
			}
			if (c.Exit == nil) != tc.open {
				t.Errorf("its end: %+v", c.Exit)
			}
			if text, err := os.ReadFile(path); string(text) != tc.want {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

// empty creates an empty file.
func empty(path string) error { return os.WriteFile(path, nil, 0o600) }
