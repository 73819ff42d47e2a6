package sandbox

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// execOutput is the size of the rehearsal process's output: more than one message holds.
const execOutput = agentv1.MaxChunk + 1

func (h *harness) rehearse() error {
	return h.box.Rehearse(h.ctx, Rehearsal{Container: []byte(`{}`), Exec: []byte(`{}`)}, h.scratch(), h.disk("image"))
}

// endExecs ends the rehearsal's processes as soon as they start, and returns them.
func (h *harness) endExecs() (all []*fakeProc) {
	for h.ctx.Err() == nil && len(all) < rounds {
		p, err := h.agent.proc(agentv1.Process{Container: rehearsalName, Exec: rehearsalName})
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
	go func() { ended <- h.endExecs() }()
	h.must(h.rehearse())
	for _, p := range <-ended {
		if p.out["stdout"].acked != execOutput {
			t.Errorf("%d bytes of its output are acknowledged", p.out["stdout"].acked)
		}
	}
	if n := h.agent.count(agentv1.OpCreate); n != rounds {
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
	if err := h.rehearse(); !errors.Is(err, ErrInvalid) {
		t.Errorf("a second rehearsal: %v", err)
	}
	if err := h.box.Create(h.ctx, h.config(), Files{}); !errors.Is(err, ErrExists) {
		t.Errorf("a pod: %v", err)
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
			go h.endExecs()
			if err := h.rehearse(); err == nil || !strings.Contains(err.Error(), "boom") {
				t.Errorf("rehearsal: %v", err)
			}
		})
	}
}
