package guest

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// agentOf returns a client of an agent with these handlers.
func agentOf(t *testing.T, handlers agentv1.Handlers) *agentv1.Client {
	return agentv1.NewClient(func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go agentv1.Serve(t.Context(), far, handlers)
		return near, nil
	})
}

// TestCorrectClock: a guest's clock is set to the host's if the deviation exceeds the precision of the measurement.
func TestCorrectClock(t *testing.T) {
	const slack = 20 * time.Millisecond
	for _, tc := range []struct {
		name  string
		ahead time.Duration // of the host's clock
		way   time.Duration // of the question, and the same for the answer
		want  time.Duration // the correction; 0 is none
	}{
		{name: "right"},
		{name: "right and far away", way: time.Second},
		{name: "ahead within the slack", ahead: slack},
		{name: "behind within the slack", ahead: -slack},
		{name: "ahead", ahead: slack + 1, want: -slack - 1},
		{name: "behind", ahead: -slack - 1, want: slack + 1},
		{name: "a day behind", ahead: -24 * time.Hour, want: 24 * time.Hour},
		{name: "within what the way leaves open", ahead: slack + time.Second, way: time.Second},
		{name: "beyond what the way leaves open", ahead: slack + time.Second + 1, way: time.Second, want: -slack - time.Second - 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			var by time.Duration
			err := CorrectClock(t.Context(), agentOf(t, agentv1.Handlers{
				agentv1.OpPing: agentv1.Unary(func(context.Context, struct{}) (agentv1.Pong, error) {
					time.Sleep(tc.way)
					now := time.Now().Add(tc.ahead)
					time.Sleep(tc.way)
					return agentv1.Pong{Time: now}, nil
				}),
				agentv1.OpAdjust: agentv1.Unary(func(_ context.Context, r agentv1.AdjustTime) (struct{}, error) {
					by = r.By
					return struct{}{}, nil
				}),
			}))
			if err != nil || by != tc.want {
				t.Errorf("%s: adjusted by %v, want %v: %v", tc.name, by, tc.want, err)
			}
		})
	}
}

// TestCorrectClockFails: an agent that fails to report its time or to adjust its clock is an error.
func TestCorrectClockFails(t *testing.T) {
	early := agentv1.Unary(func(context.Context, struct{}) (agentv1.Pong, error) { return agentv1.Pong{}, nil })
	adjusts := agentv1.Unary(func(context.Context, agentv1.AdjustTime) (struct{}, error) { return struct{}{}, nil })
	for name, handlers := range map[string]agentv1.Handlers{
		"no time":       {agentv1.OpAdjust: adjusts},
		"no adjustment": {agentv1.OpPing: early},
	} {
		if err := CorrectClock(t.Context(), agentOf(t, handlers)); !errors.Is(err, errdefs.ErrNotImplemented) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
