package sandbox

import (
	"errors"
	"time"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// oomPause is the time before the first wait for OOM kills, so that a start has precedence, and between two waits.
const oomPause = time.Second

// watchOOM starts to wait for the guest's OOM kills, once for each VM. The caller holds mu.
func (t *processes) watchOOM(m *liveVM) {
	if t.watched == m {
		return
	}
	t.watched = m
	t.work.Go(func() { t.followOOM(m) })
}

// followOOM reports processes of containers that the guest's kernel kills, until the VM ends. An agent of an older
// version reports them only with their exits.
func (t *processes) followOOM(m *liveVM) {
	for {
		pause := time.NewTimer(t.oomPause)
		select {
		case <-pause.C:
		case <-m.Context().Done():
			pause.Stop()
			return
		}
		now, err := m.Agent.OOMKills(m.Context(), t.knownKills())
		if errors.Is(err, errdefs.ErrNotImplemented) {
			return
		}
		if err == nil {
			t.takeKills(now)
		}
	}
}

// knownKills returns the kills that were reported.
func (t *processes) knownKills() agentv1.OOMKills {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := agentv1.OOMKills{Kills: map[string]uint64{}}
	for id, p := range t.all {
		if id.Exec == "" && p.oomKills > 0 {
			known.Kills[id.Container] = p.oomKills
		}
	}
	return known
}

// takeKills reports the kills that the guest counts.
func (t *processes) takeKills(now agentv1.OOMKills) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, p := range t.all {
		if id.Exec == "" && !p.hidden && p.state != Stopped {
			p.reportKills(now.Kills[id.Container])
		}
	}
}

// reportKills publishes an event for a container if the kernel has killed more of its processes; the caller holds mu.
func (p *process) reportKills(kills uint64) {
	if kills <= p.oomKills {
		return
	}
	p.oomKills = kills
	p.table.storeOrLog(p.id.Container)
	p.table.emit(Event{Kind: OOM, Process: p.id, PID: p.pid})
}

// reportOOM publishes an event for a process that ended by an OOM kill, unless it was published already; the caller
// holds mu.
func (p *process) reportOOM(exit Exit) {
	c := p.table.all[Process{Container: p.id.Container}]
	switch {
	case exit.Reason != ReasonOOMKilled:
	case p.exitKills > 0 && c != nil:
		c.reportKills(p.exitKills)
	default: // the VM was killed, or its agent does not count
		p.table.emit(Event{Kind: OOM, Process: p.id, PID: p.pid})
	}
}
