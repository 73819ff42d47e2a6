package sandbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/rehearsal"
)

// execOutput is the size of the rehearsal process's output: more than one message holds.
const execOutput = agentv1.MaxChunk + 1

func (h *harness) rehearse() error {
	return h.box.Rehearse(h.ctx, Rehearsal{Container: []byte(`{}`), Exec: []byte(`{}`)}, h.scratch(), h.disk("image"))
}

// rehearseShared also rehearses a container on a shared directory. served is 1 while its server runs.
func (h *harness) rehearseShared(served *atomic.Int32) error {
	ring := h.disk("ring")
	defer ring.Close()
	return h.box.Rehearse(h.ctx, Rehearsal{Container: []byte(`{}`), Exec: []byte(`{}`), Shared: &SharedRehearsal{
		Name: "auto-share", Container: []byte(`{}`), Ring: ring,
		Serve: func(context.Context) (func(context.Context) error, error) {
			served.Add(1)
			return func(context.Context) error { served.Add(-1); return nil }, nil
		},
	}}, h.scratch(), h.disk("image"))
}

// endExecs ends n of the rehearsal's processes as soon as they start, and returns them.
func (h *harness) endExecs(n int) (all []*fakeProc) {
	for h.ctx.Err() == nil && len(all) < n {
		p, err := h.agent.proc(agentv1.Process{Container: rehearsal.Name, Exec: rehearsal.Name})
		if err == nil && !slices.Contains(all, p) {
			h.write(p, "stdout", strings.Repeat("x", execOutput))
			p.finish(agentv1.Exit{At: time.Now()})
			all = append(all, p)
		}
		time.Sleep(time.Millisecond)
	}
	return all
}

// TestRehearse: a rehearsal leaves only the scratch disk in the VM. Afterwards the sandbox accepts neither a pod nor
// another rehearsal.
func TestRehearse(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	ended := make(chan []*fakeProc, 1)
	go func() { ended <- h.endExecs(rehearsal.Rounds) }()
	h.must(h.rehearse())
	for _, p := range <-ended {
		if p.out["stdout"].acked != execOutput {
			t.Errorf("%d bytes of its output are acknowledged", p.out["stdout"].acked)
		}
	}
	if n := h.agent.count(agentv1.OpCreate); n != rehearsal.Rounds {
		t.Errorf("%d containers", n)
	}
	h.agent.mu.Lock()
	if len(h.agent.procs) > 0 || len(h.agent.mounts) != 1 {
		t.Errorf("left: processes %v, mounts %v", h.agent.procs, h.agent.mounts)
	}
	h.agent.mu.Unlock()
	if left := h.vm().attached(); left != 1 {
		t.Errorf("left: %d disks", left)
	}
	if c := h.agent.configured; len(c) != 1 || !c[0].Rehearsal || c[0].MachineID == "" {
		t.Errorf("configured with %+v", c)
	}
	if n := h.agent.count(agentv1.OpMount); n != 2 {
		t.Errorf("%d mounts, want the scratch disk and the image", n)
	}
	if err := h.rehearse(); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("a second rehearsal: %v", err)
	}
	if err := h.box.Create(h.ctx, h.config(), Files{}); !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("a pod: %v", err)
	}
}

// TestRehearseShared: the rehearsal of a container on a shared directory leaves neither its server nor its ring.
func TestRehearseShared(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	go h.endExecs(2 * rehearsal.Rounds)
	var served atomic.Int32
	h.must(h.rehearseShared(&served))
	if served.Load() != 0 {
		t.Error("the share server still runs")
	}
	h.agent.mu.Lock()
	defer h.agent.mu.Unlock()
	if n := len(h.agent.created); n != 2*rehearsal.Rounds {
		t.Fatalf("%d containers, want %d", n, 2*rehearsal.Rounds)
	}
	for i, c := range h.agent.created {
		if root := c.RootRecord; (root.Share == "auto-share") != (i < rehearsal.Rounds) {
			t.Errorf("container %d has the root %+v", i, root)
		}
	}
	if len(h.agent.procs) > 0 || len(h.agent.mounts) != 1 {
		t.Errorf("left: processes %v, mounts %v", h.agent.procs, h.agent.mounts)
	}
	if left := h.vm().attached(); left != 1 {
		t.Errorf("left: %d disks", left)
	}
}

// TestRehearsalThatFails: the error of each failed step is returned, and the rest is undone.
func TestRehearsalThatFails(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, op := range []agentv1.Op{
		agentv1.OpConfigure,
		agentv1.OpMount,
		agentv1.OpCreate,
		agentv1.OpStart,
		agentv1.OpExec,
		agentv1.OpDelete,
		agentv1.OpUnmount,
	} {
		t.Run(string(op), func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.agent.refuse(op, boom)
			go h.endExecs(2 * rehearsal.Rounds)
			var served atomic.Int32
			if err := h.rehearseShared(&served); err == nil || !strings.Contains(err.Error(), "boom") {
				t.Errorf("rehearsal: %v", err)
			}
			if served.Load() != 0 {
				t.Error("the share server still runs")
			}
		})
	}
}
