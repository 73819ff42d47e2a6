package sandbox

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

func (h *harness) rehearse() error {
	return h.box.Rehearse(h.ctx, Rehearsal{MemoryMiB: 512, Container: []byte(`{}`), Exec: []byte(`{}`)},
		RehearsalFiles{Scratch: h.scratch(), Image: h.disk("image")})
}

// execOutput is what the rehearsal's process writes: more than one message holds.
const execOutput = agentv1.MaxChunk + 1

// endExec ends the rehearsal's process as soon as there is one, and returns it.
func (h *harness) endExec() *fakeProc {
	for h.ctx.Err() == nil {
		p, err := h.agent.proc(agentv1.Process{Container: rehearsalName, Exec: rehearsalName})
		if err == nil {
			h.say(p, "stdout", strings.Repeat("x", execOutput))
			p.end(agentv1.Exit{At: time.Now()})
			return p
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// becomesPod creates and starts the sandbox and looks for what a rehearsal has left.
func (h *harness) becomesPod() {
	h.t.Helper()
	h.must(h.box.Create(h.ctx, h.config(), Files{}))
	h.must(h.box.Start(h.ctx))
	h.agent.mu.Lock()
	defer h.agent.mu.Unlock()
	if len(h.agent.procs) > 0 || len(h.agent.mounts) != 1 {
		h.t.Errorf("left: processes %v, mounts %v", h.agent.procs, h.agent.mounts)
	}
	if st := h.box.Status(); st.State != Running || st.MemoryMiB != 512 || len(st.Processes) > 0 {
		h.t.Errorf("status %+v", st)
	}
}

// A whole rehearsal: the pod then has little left to do, and nothing of it.
func TestRehearse(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	ended := make(chan *fakeProc, 1)
	go func() { ended <- h.endExec() }()
	h.must(h.rehearse())
	h.must(h.box.WaitBooted(h.ctx))
	if p := <-ended; p.out["stdout"].acked != execOutput {
		t.Errorf("of its output %d bytes are taken", p.out["stdout"].acked)
	}
	h.becomesPod()
	if err := h.rehearse(); !errors.Is(err, ErrInvalid) {
		t.Errorf("a pod rehearses: %v", err)
	}
	c := h.agent.configured
	if len(c) != 2 || !c[0].Rehearsal || c[1].Rehearsal || string(c[0].Entropy) == string(c[1].Entropy) || c[0].MachineID == c[1].MachineID {
		t.Errorf("configured with %+v", c)
	}
	if n := h.agent.count(agentv1.OpMount); n != 2 {
		t.Errorf("%d mounts, of the scratch disk and the image", n)
	}
	phases := ""
	for _, p := range h.box.Status().Phases {
		phases += p.Name + "\n"
	}
	if !strings.Contains(phases, "ahead: exec\n") || strings.Contains(phases, "\nscratch\n") {
		t.Errorf("phases %q", phases)
	}
}

// A pod that comes meanwhile waits for the step under way and no longer.
func TestRehearsalEndsForAPod(t *testing.T) {
	t.Parallel()
	for _, op := range []agentv1.Op{agentv1.OpConfigure, agentv1.OpStart} {
		t.Run(string(op), func(t *testing.T) {
			t.Parallel()
			rehearsalEnds(t, op)
		})
	}
}

// rehearsalEnds has a pod come during the step that calls op.
func rehearsalEnds(t *testing.T, op agentv1.Op) {
	h := newHarness(t)
	reached, release := make(chan struct{}), make(chan struct{})
	h.agent.raw[op] = func(conn net.Conn) {
		h.agent.mu.Lock()
		delete(h.agent.raw, op) // the pod's own call is as ever
		h.agent.mu.Unlock()
		close(reached)
		<-release
		_ = agentv1.WriteFrame(conn, agentv1.Reply{Body: []byte("{}")}, agentv1.MaxReply)
	}
	h.must(h.rehearse())
	<-reached
	asked := make(chan struct{})
	var once sync.Once
	h.box.mu.Lock()
	interrupt := h.box.interrupt
	h.box.interrupt = func(cause error) { interrupt(cause); once.Do(func() { close(asked) }) }
	h.box.mu.Unlock()
	created := make(chan struct{})
	go func() {
		defer close(created)
		h.becomesPod()
	}()
	<-asked
	close(release)
	<-created
	if n := h.agent.count(agentv1.OpExec); n != 0 {
		t.Errorf("%d steps more", n)
	}
	if err := h.box.WaitBooted(h.ctx); err != nil {
		t.Errorf("an early end is a failure: %v", err)
	}
}

// A machine that cannot be cleaned up gets no pod, and can be deleted.
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
			go h.endExec()
			h.must(h.rehearse())
			if err := h.box.WaitBooted(h.ctx); err == nil || !strings.Contains(err.Error(), "boom") {
				t.Errorf("rehearsal: %v", err)
			}
			if err := h.box.Create(h.ctx, h.config(), Files{}); err == nil || !strings.Contains(err.Error(), "boom") {
				t.Errorf("create: %v", err)
			}
			h.must(h.box.Delete(h.ctx, true))
			if _, err := os.Stat(filepath.Join(h.dir, "state.json")); !os.IsNotExist(err) {
				t.Errorf("left: %v", err)
			}
		})
	}
}
