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
func (s *Sandbox) watchOOM(m *liveVM) {
	if m.oomWatched {
		return
	}
	m.oomWatched = true
	s.spawn(func() { s.followOOM(m) })
}

// followOOM reports processes of containers that the guest's kernel kills, until the VM ends. An agent of an older
// version reports them only with their exits.
func (s *Sandbox) followOOM(m *liveVM) {
	for {
		pause := time.NewTimer(s.oomPause)
		select {
		case <-pause.C:
		case <-m.ctx.Done():
			pause.Stop()
			return
		}
		now, err := m.agent.OOMKills(m.ctx, s.knownKills())
		if errors.Is(err, errdefs.ErrNotImplemented) {
			return
		}
		if err == nil {
			s.takeKills(now)
		}
	}
}

// knownKills returns the kills that were reported.
func (s *Sandbox) knownKills() agentv1.OOMKills {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := agentv1.OOMKills{Kills: map[string]uint64{}}
	for id, p := range s.procs {
		if id.Exec == "" && p.oomKills > 0 {
			known.Kills[id.Container] = p.oomKills
		}
	}
	return known
}

// takeKills reports the kills that the guest counts.
func (s *Sandbox) takeKills(now agentv1.OOMKills) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, p := range s.procs {
		if id.Exec == "" && !p.hidden && p.state != Stopped {
			s.reportKills(p, now.Kills[id.Container])
		}
	}
}

// reportKills publishes an event for a container if the kernel has killed more of its processes; the caller holds mu.
func (s *Sandbox) reportKills(c *process, kills uint64) {
	if kills <= c.oomKills {
		return
	}
	c.oomKills = kills
	s.storeContainerOrLog(c.id.Container)
	s.emit(Event{Kind: OOM, Process: c.id, PID: c.pid})
}

// reportExit publishes an event for a process that ended by an OOM kill, unless it was published already; the caller
// holds mu.
func (s *Sandbox) reportExit(p *process, exit Exit) {
	c := s.procs[Process{Container: p.id.Container}]
	switch {
	case exit.Reason != ReasonOOMKilled:
	case p.exitKills > 0 && c != nil:
		s.reportKills(c, p.exitKills)
	default: // the VM was killed, or its agent does not count
		s.emit(Event{Kind: OOM, Process: p.id, PID: p.pid})
	}
}
