// Package ready waits until the guest of a new VM is usable: its agent answers and, if clones will be made of it, its
// clock is right.
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

// ErrClock is matched by the error for a guest with a clock that runs too fast or too slow. The error also matches
// template.ErrUnfit.
var ErrClock = errors.New("the guest's clock is wrong")

const (
	// clockSpan is the duration of the comparison of the clocks; it is long compared with an answer.
	clockSpan = 300 * time.Millisecond
	// clockSlack is the tolerated relative difference. The kernel corrects smaller ones: if its two measurements differ
	// by less than a tenth, it uses the more reliable one.
	clockSlack = 0.05
)

// ping asks the agent for its time.
type ping = func(context.Context) (agentv1.Pong, error)

// Answering waits for the agent's first answer.
func Answering(ctx context.Context, v hypervisor.VM) error {
	return with(ctx, v, channel.Options{}, answering)
}

func answering(ctx context.Context, ask ping) error {
	_, err := ask(ctx)
	return err
}

// Steady is the readiness check for templates. A VM may be saved when its agent answers and its clock is right. A
// kernel measures its processor's clock rate at boot. If the emulation is interrupted then, as on a busy host, the
// result is up to forty times too small. The clocks of all clones would run that much too fast, and deadlines would
// expire at once. A clone must answer over its first connection.
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

// with runs do with a session with the agent.
func with(ctx context.Context, v hypervisor.VM, o channel.Options, do func(context.Context, ping) error) error {
	session, err := channel.Dial(ctx, v.Connect, o)
	if err != nil {
		return fmt.Errorf("reach the agent: %w", err)
	}
	return errors.Join(do(ctx, agentv1.NewClient(session.Open).Ping), session.Close())
}

// compareClock reads the guest's clock twice, span apart. Between the two readings, at least span must have passed in
// the guest, and at most the time from the first question to the last answer on the host.
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
