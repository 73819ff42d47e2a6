package agent

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/cgroup"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// TestSeams checks that the guest's names equal the host's; the agent does not import the host's packages.
func TestSeams(t *testing.T) {
	t.Parallel()
	if agentv1.Port != hypervisor.ChannelPort || agentv1.SharePort != hypervisor.SharePort {
		t.Errorf("the ports are %q, %q here and %q, %q there", agentv1.Port, agentv1.SharePort, hypervisor.ChannelPort, hypervisor.SharePort)
	}
}

func TestExitOf(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status unix.WaitStatus
		oom    bool
		want   agentv1.Exit
	}{
		{0, false, agentv1.Exit{}},
		{3 << 8, false, agentv1.Exit{Code: 3}},
		{9, false, agentv1.Exit{Code: 137, Signal: 9}},
		{9, true, agentv1.Exit{Code: 137, Signal: 9, OOMKilled: true}},
		{0, true, agentv1.Exit{}}, // a child was killed, but the process succeeded
		{0x80 | 11, false, agentv1.Exit{Code: 139, Signal: 11}},
	} {
		got := exitOf(tc.status, tc.oom)
		got.At = time.Time{}
		if got != tc.want {
			t.Errorf("%x: %+v, want %+v", tc.status, got, tc.want)
		}
	}
}

func TestRoots(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		root containerv1.RootRecord
		want error
	}{
		{name: "none", want: errdefs.ErrInvalidArgument},
		{name: "two", root: containerv1.RootRecord{Image: "i", Share: "s"}, want: errdefs.ErrInvalidArgument},
		{name: "an invalid shared directory", root: containerv1.RecordOf(containerv1.Share{Name: "../s"}), want: errdefs.ErrInvalidArgument},
		{name: "a block device that is not mounted", root: containerv1.RecordOf(containerv1.Block{Name: "b"}), want: errdefs.ErrNotFound},
		{name: "an image that is not mounted", root: containerv1.RecordOf(containerv1.Image{ID: "i"}), want: errdefs.ErrNotFound},
	} {
		if at, _, err := (&Agent{}).lower(t.Context(), &container{}, agentv1.Create{RootRecord: tt.root}); !errors.Is(err, tt.want) {
			t.Errorf("%s: %q, %v", tt.name, at, err)
		}
	}
}

// TestReplaced checks that an operation that waits for the removal of a container leaves a new one with its id alone.
func TestReplaced(t *testing.T) {
	t.Parallel()
	const id = "web"
	name := agentv1.Process{Container: id}
	for call, operation := range map[string]func(*Agent) error{
		"delete": func(a *Agent) error { _, err := a.delete(t.Context(), name); return err },
		"start":  func(a *Agent) error { return a.start(t.Context(), name) },
		"freeze": func(a *Agent) error { return a.freeze(t.Context(), id, true) },
		"update": func(a *Agent) error { return a.update(t.Context(), agentv1.Update{Container: id}) },
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			group, dir := cgroup.Dir(t.TempDir()), t.TempDir()
			made := func() *container {
				c := &container{id: id, dir: dir, cgroup: group, started: true, procs: map[string]*process{}}
				c.op.Lock()
				return c
			}
			before, after := made(), made()
			a := &Agent{containers: map[string]*container{id: before}}
			put := func(c *container) {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.containers[id] = c
			}
			result := make(chan error, 1)
			go func() { result <- operation(a) }()
			time.Sleep(100 * time.Millisecond) // a later call waits for the new container, which is also removed
			put(after)
			before.op.Unlock()
			time.Sleep(100 * time.Millisecond)
			put(nil)
			after.op.Unlock()
			if err := <-result; !errors.Is(err, errdefs.ErrNotFound) {
				t.Errorf("got %v, want not found", err)
			}
			if files, err := os.ReadDir(string(group)); err != nil || len(files) != 0 {
				t.Errorf("the call wrote to the new container's cgroup: %v, %v", files, err)
			}
		})
	}
}
