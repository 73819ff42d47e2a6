package agentv1_test

import (
	"context"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/timeline"
)

// TestParts checks that a guest reports the parts of traced calls only.
func TestParts(t *testing.T) {
	t.Parallel()
	c := agent(t, agentv1.Handlers{agentv1.OpCreate: agentv1.Unary(func(ctx context.Context, r agentv1.Create) (agentv1.Created, error) {
		for _, name := range []string{agentv1.PartSpec, agentv1.PartRoot, "of the guest's own"} {
			agentv1.Begin(ctx, name)()
		}
		if r.Container == "bad" {
			return agentv1.Created{}, agentv1.ErrBusy
		}
		return agentv1.Created{PID: 7}, nil
	})})
	if got, err := c.Create(within(t, 5*time.Second), agentv1.Create{}); err != nil || got.PID != 7 {
		t.Errorf("an untraced call: %+v, %v", got, err)
	}
	ctx, took := timeline.With(within(t, 5*time.Second))
	began := time.Now()
	if got, err := c.Create(ctx, agentv1.Create{}); err != nil || got.PID != 7 {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := c.Create(ctx, agentv1.Create{Container: "bad"}); err == nil {
		t.Error("no error")
	}
	steps := took.Steps()
	if len(steps) != 2 || len(steps[1].Parts) != 0 { // an error comes without parts
		t.Fatalf("steps %+v", steps)
	}
	s := steps[0]
	if s.Name != "agent create" || s.Begin.Before(began) || s.Begin.Add(s.Took).After(time.Now()) ||
		len(s.Parts) != 2 || s.Parts[0].Name != agentv1.PartSpec || s.Parts[1].Name != agentv1.PartRoot {
		t.Errorf("step %+v", s)
	}
}

// TestHostileParts checks that a guest's parts cannot take longer than the call.
func TestHostileParts(t *testing.T) {
	t.Parallel()
	parts := []agentv1.Part{{Name: agentv1.PartCrun, Usec: math.MaxInt64}, {Name: agentv1.PartCrun, Usec: math.MinInt64}}
	for range 1000 {
		parts = append(parts, agentv1.Part{Name: strings.Repeat("\x1b", 20), Usec: 1}, agentv1.Part{Name: agentv1.PartCrun, Usec: 1})
	}
	c := connect(t, func(conn net.Conn) {
		defer conn.Close()
		var call agentv1.Call
		_ = agentv1.ReadFrame(conn, &call, agentv1.MaxCall)
		_ = agentv1.WriteFrame(conn, agentv1.Reply{Parts: parts}, agentv1.MaxReply)
	})
	ctx, took := timeline.With(within(t, 5*time.Second))
	if err := c.Start(ctx, agentv1.Process{}); err != nil {
		t.Fatal(err)
	}
	for _, s := range took.Steps() {
		var sum time.Duration
		for _, p := range s.Parts {
			sum += p.Took
			if p.Name != agentv1.PartCrun || p.Took < 0 {
				t.Errorf("part %+v", p)
			}
		}
		if sum > s.Took || len(s.Parts) == 0 || len(s.Parts) > timeline.MaxParts {
			t.Errorf("%d parts, %v of %v", len(s.Parts), sum, s.Took)
		}
	}
	if len(took.Steps()) != 1 {
		t.Errorf("steps %+v", took.Steps())
	}
}
