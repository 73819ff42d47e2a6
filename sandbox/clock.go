package sandbox

import (
	"fmt"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// How the guest's clock is checked. Its kernel counts the time by what it measured
// at its boot, which is wrong by seconds a day, and stands still when the host
// does, as one whose lid is closed.
const (
	clockPeriod = time.Minute
	// clockSlack is what is left to the guest: less cannot be told from the
	// time that an answer takes.
	clockSlack = 20 * time.Millisecond
)

// keepClock has the guest's clock follow the host's until the machine ends.
func (s *Sandbox) keepClock(m *machine) {
	tick := time.NewTicker(clockPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.logIf("keep the guest's clock", s.correctClock(m))
		case <-m.ctx.Done():
			return
		}
	}
}

// correctClock does it once, as far as the time that an answer takes lets the
// guest's clock be known.
func (s *Sandbox) correctClock(m *machine) error {
	if s.Status().State != Running {
		return nil // one that stands still has its clock set when it goes on
	}
	ctx, done := m.call(s.ctx, s.o.CallTimeout)
	defer done()
	asked := now()
	pong, err := m.agent.Ping(ctx)
	if err != nil {
		return fmt.Errorf("ask for the guest's clock: %w", err)
	}
	took := now().Sub(asked)
	by := asked.Add(took / 2).Sub(pong.Time)
	if by.Abs() <= clockSlack+took/2 {
		return nil
	}
	if err := m.agent.AdjustTime(ctx, agentv1.AdjustTime{By: by}); err != nil {
		return fmt.Errorf("adjust the guest's clock by %v: %w", by, err)
	}
	return nil
}
