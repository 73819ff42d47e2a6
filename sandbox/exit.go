package sandbox

import (
	"errors"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/guest"
)

// logPatience bounds the wait for the last output of a process that has ended. A child of it may hold its output open.
const logPatience = 10 * time.Second

// await starts to wait for the process's end, once; the caller holds mu.
func (p *process) await() {
	t := p.table
	if p.awaited {
		return
	}
	p.awaited = true
	t.work.Go(func() {
		exit, ok := p.askExit()
		if !ok {
			return // the VM's end ends the process
		}
		t.mu.Lock()
		kept := p.kept()
		t.mu.Unlock()
		if kept {
			late := time.NewTimer(logPatience)
			defer late.Stop()
			select {
			case <-p.pumped:
			case <-p.unread():
			case <-late.C:
			case <-p.vm.Context().Done():
			}
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		p.finish(exit)
	})
}

// askExit waits for the agent to report the exit. ok is false if the VM ended first or the sandbox was closed.
func (p *process) askExit() (Exit, bool) {
	m := p.vm
	refused := false
	for b := (guest.Backoff{}); ; {
		got, err := m.Agent.Wait(m.Context(), p.id)
		if err == nil {
			p.table.mu.Lock()
			defer p.table.mu.Unlock()
			p.exitKills = got.OOMKills
			return exitOf(got, p.startedAt), true
		}
		var refusal *agentv1.Error
		if errors.As(err, &refusal) && refused {
			return Exit{Code: 137, Signal: 9, Reason: ReasonError, At: now(),
				Message: "the agent does not report its exit: " + refusal.Error()}, true
		}
		// Ask once more: the last answer of a dying VM may be that the call was interrupted.
		refused = refusal != nil
		if !b.Wait(m.Context(), m.VM.Done()) {
			return Exit{}, false
		}
	}
}

// exitOf converts an exit that the guest reports and corrects implausible values.
func exitOf(e agentv1.Exit, started time.Time) Exit {
	x := Exit{Code: e.Code, Signal: e.Signal, At: e.At.UTC()}
	if x.Signal < 0 || x.Signal > 64 {
		x.Signal = 0
	}
	if x.Code < 0 || x.Code > 255 {
		x.Code = 255
	}
	if t := now(); x.At.Before(started) || x.At.After(t) {
		x.At = t
	}
	switch {
	case e.OOMKilled:
		x.Reason = ReasonOOMKilled
		if x.Code == 0 {
			x.Code = 137
		}
	case x.Code == 0:
		x.Reason = ReasonCompleted
	default:
		x.Reason = ReasonError
	}
	return x
}

// finish marks a process as ended, once; the caller holds mu.
func (p *process) finish(exit Exit) {
	if p.state == Stopped {
		return
	}
	if p.state == Ready {
		close(p.started)
	}
	if !p.followed {
		p.endOutput()
	}
	p.state, p.exit, p.spec = Stopped, &exit, nil
	defer close(p.done)
	if p.hidden {
		return // CreateContainer finds out that the VM is gone
	}
	p.table.storeOrLog(p.id.Container)
	p.reportOOM(exit)
	p.table.emit(Event{Kind: ProcessExited, Process: p.id, PID: p.pid, Exit: &exit, Time: exit.At, Message: exit.Message})
}
