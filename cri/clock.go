package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/channel"
	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// errClock: the guest's clock does not keep step with the host's.
var errClock = errors.New("its clock is wrong")

const (
	// clockTries is how often a template is booted for a clock that is right.
	clockTries = 4
	// clockSpan is for how long its clock is compared with the host's: long
	// beside an answer.
	clockSpan = 300 * time.Millisecond
	// clockSlack is the part by which they may differ. The kernel itself sees to
	// less: where its two measures differ by less than a tenth, it takes the one
	// that is never far off.
	clockSlack = 0.05
)

// steady waits for the agent's first answer, after which a machine is a template
// if its clock is right. A kernel measures its processor's clock when it boots,
// and where emulation is interrupted just then, as it is on a busy host, its
// measure is up to forty times too small: all clones would live that much too
// fast, and their deadlines pass before anything is done.
func steady(ctx context.Context, v hypervisor.VM) error {
	session, err := channel.Dial(ctx, v.Channel(), channel.Options{})
	if err != nil {
		return fmt.Errorf("reach the agent: %w", err)
	}
	return errors.Join(compareClock(ctx, agentv1.NewClient(session.Open).Ping, clockSpan), session.Close())
}

// compareClock has the guest's clock read twice, span apart. Between the answer
// to the first and the question of the second no more time can have passed in the
// guest than between the first question and the last answer here, and no less
// than span.
func compareClock(ctx context.Context, ping func(context.Context) (agentv1.Pong, error), span time.Duration) error {
	asked := time.Now()
	first, err := ping(ctx)
	if err != nil {
		return err
	}
	answered := time.Now()
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	least := time.Since(answered)
	second, err := ping(ctx)
	if err != nil {
		return err
	}
	most, passed := time.Since(asked), second.Uptime-first.Uptime
	if float64(passed) < float64(least)*(1-clockSlack) || float64(passed) > float64(most)*(1+clockSlack) {
		return fmt.Errorf("%w: %v have passed in the guest in %v to %v", errClock, passed.Round(time.Millisecond), least.Round(time.Millisecond), most.Round(time.Millisecond))
	}
	return nil
}
