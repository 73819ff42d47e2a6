package guest

import (
	"context"
	"fmt"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// How the guest's clock is checked. Its kernel counts the time by what it measured
// at its boot, which is wrong by seconds a day, and stands still when the host
// does, as one whose lid is closed.
const (
	// ClockPeriod is how often CorrectClock is due.
	ClockPeriod = time.Minute
	// ClockSlack is what is left to the guest: less cannot be told from the
	// time that an answer takes.
	ClockSlack = 20 * time.Millisecond
)

// CorrectClock sets the guest's clock to the host's, as far as the time that an
// answer takes lets the guest's clock be known.
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
