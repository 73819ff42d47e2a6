// Package ready waits until the guest of a new VM is of use: until its agent
// answers and, where clones are to be made of it, its clock is known to be right.
package ready

import (
	"context"
	"errors"
	"fmt"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/channel"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/template"
)

// ErrClock is matched by the error for a guest whose clock does not keep step
// with the host's. Such a guest is also template.ErrUnfit.
var ErrClock = errors.New("the guest's clock is wrong")

const (
	// clockSpan is for how long the guest's clock is compared with the host's:
	// long beside an answer.
	clockSpan = 300 * time.Millisecond
	// clockSlack is the part by which they may differ. The kernel itself sees to
	// less: where its two measures differ by less than a tenth, it takes the one
	// that is never far off.
	clockSlack = 0.05
)

// ping asks the agent, which tells the time.
type ping = func(context.Context) (agentv1.Pong, error)

// Answering waits for the agent's first answer.
func Answering(ctx context.Context, v hypervisor.VM) error {
	return with(ctx, v, channel.Options{}, answering)
}

func answering(ctx context.Context, ask ping) error {
	_, err := ask(ctx)
	return err
}

// Steady is what templates need of the guest. A VM is ready to be saved when its
// agent answers and its clock is right. A kernel measures its processor's clock
// when it boots, and where emulation is interrupted just then, as it is on a busy
// host, its measure is up to forty times too small: all clones would live that
// much too fast, and their deadlines pass before anything is done. A clone has
// answered when it did so over its first connection.
var Steady = template.Guest{
	Ready: func(ctx context.Context, v hypervisor.VM) error {
		return with(ctx, v, channel.Options{}, func(ctx context.Context, ask ping) error { return compareClock(ctx, ask, clockSpan) })
	},
	Answer: func(ctx context.Context, v hypervisor.VM) error {
		return with(ctx, v, channel.Options{Patience: forever}, answering)
	},
}

// forever is longer than any context of a template lasts.
const forever = 24 * time.Hour

// with opens a session with the agent for as long as do takes.
func with(ctx context.Context, v hypervisor.VM, o channel.Options, do func(context.Context, ping) error) error {
	session, err := channel.Dial(ctx, v.Connect, o)
	if err != nil {
		return fmt.Errorf("reach the agent: %w", err)
	}
	return errors.Join(do(ctx, agentv1.NewClient(session.Open).Ping), session.Close())
}

// compareClock has the guest's clock read twice, span apart. Between the answer
// to the first and the question of the second no more time can have passed in the
// guest than between the first question and the last answer here, and no less
// than span.
func compareClock(ctx context.Context, ask ping, span time.Duration) error {
	asked := time.Now()
	first, err := ask(ctx)
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
	second, err := ask(ctx)
	if err != nil {
		return err
	}
	most, passed := time.Since(asked), second.Uptime-first.Uptime
	if float64(passed) < float64(least)*(1-clockSlack) || float64(passed) > float64(most)*(1+clockSlack) {
		return fmt.Errorf("%w: %w: %v passed in the guest while %v to %v passed on the host", template.ErrUnfit, ErrClock,
			passed.Round(time.Millisecond), least.Round(time.Millisecond), most.Round(time.Millisecond))
	}
	return nil
}
