package guest

import (
	"context"
	"fmt"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// Checks of the guest's clock. The guest's kernel derives its clock rate from a measurement at boot, which is wrong by
// seconds a day. The clock also stops while the host sleeps.
const (
	clockPeriod = time.Minute // the interval between corrections
	// ClockSlack is the tolerated difference. Smaller ones cannot be distinguished from the time that an answer takes.
	ClockSlack = 20 * time.Millisecond
)

// KeepClock calls correct at regular intervals until the VM ends.
func (m *Live) KeepClock(correct func()) {
	tick := time.NewTicker(clockPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			correct()
		case <-m.ctx.Done():
			return
		}
	}
}

// CorrectClock sets the guest's clock to the host's. Its precision is limited by the time that the agent's answer
// takes.
func CorrectClock(ctx context.Context, agent *agentv1.Client) error {
	asked := time.Now().UTC()
	pong, err := agent.Ping(ctx)
	if err != nil {
		return fmt.Errorf("read the guest's clock: %w", err)
	}
	took := time.Now().UTC().Sub(asked)
	by := asked.Add(took / 2).Sub(pong.Time)
	if by.Abs() <= ClockSlack+took/2 {
		return nil
	}
	if err := agent.AdjustTime(ctx, agentv1.AdjustTime{By: by}); err != nil {
		return fmt.Errorf("adjust the guest's clock by %v: %w", by, err)
	}
	return nil
}
