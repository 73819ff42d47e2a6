package timeline_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/internal/timeline"
)

// TestRecorder: a tracer gets the steps, also those with another context, and at most MaxSteps. Without a tracer there
// is no cost.
func TestRecorder(t *testing.T) {
	ctx, r := timeline.With(t.Context())
	timeline.From(timeline.Carry(context.Background(), ctx)).Add(timeline.Step{Name: "a"})
	timeline.From(ctx).Add(make([]timeline.Step, timeline.MaxSteps)...)
	timeline.From(ctx).Add(timeline.Step{Name: "late"})
	if got := r.Steps(); len(got) != timeline.MaxSteps || got[0].Name != "a" {
		t.Errorf("%d steps, %v", len(got), got[0])
	}
	nobody := timeline.From(t.Context())
	nobody.Add(timeline.Step{Name: "a"})
	if nobody != nil || nobody.Steps() != nil || timeline.Carry(t.Context(), context.Background()) != t.Context() {
		t.Error("there is a recorder")
	}
}

// TestWithin: all reported steps lie within the call.
func TestWithin(t *testing.T) {
	begin := time.Unix(1000, 0)
	end := begin.Add(time.Second)
	at := func(d time.Duration) time.Time { return begin.Add(d) }
	known := func(name string) bool { return name == "a" || name == "b" }
	for name, tc := range map[string]struct{ in, want []timeline.Step }{
		"the truth": {
			[]timeline.Step{{"a", at(100), 50, []timeline.Part{{"b", 20}, {"a", 30}}}},
			[]timeline.Step{{"a", at(100), 50, []timeline.Part{{"b", 20}, {"a", 30}}}},
		},
		"other names": {
			[]timeline.Step{{"\x1b[2J", at(100), 50, nil}, {"a", at(100), 50, []timeline.Part{{"c", 20}, {"b", 1}}}},
			[]timeline.Step{{"a", at(100), 50, []timeline.Part{{"b", 1}}}},
		},
		"before the call": {[]timeline.Step{{"a", time.Time{}, 50, nil}}, []timeline.Step{{"a", begin, 50, nil}}},
		"after the call":  {[]timeline.Step{{"a", at(2 * time.Second), 50, nil}}, []timeline.Step{{"a", begin, 50, nil}}},
		"for ever": {
			[]timeline.Step{{"a", at(100), math.MaxInt64, []timeline.Part{{"b", math.MaxInt64}, {"b", math.MaxInt64}}}},
			[]timeline.Step{{"a", at(100), time.Second - 100, []timeline.Part{{"b", time.Second - 100}, {"b", 0}}}},
		},
		"less than nothing": {
			[]timeline.Step{{"a", at(100), math.MinInt64, []timeline.Part{{"b", -1}}}},
			[]timeline.Step{{"a", at(100), 0, []timeline.Part{{"b", 0}}}},
		},
	} {
		if diff := cmp.Diff(tc.want, timeline.Within(tc.in, begin, end, known)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	many := make([]timeline.Step, 1000)
	for i := range many {
		many[i] = timeline.Step{Name: "a", Took: 1, Parts: make([]timeline.Part, 1000)}
		for j := range many[i].Parts {
			many[i].Parts[j].Name = "b"
		}
	}
	if got := timeline.Within(many, begin, end, known); len(got) != timeline.MaxSteps || len(got[0].Parts) != timeline.MaxParts {
		t.Errorf("%d steps of %d parts", len(got), len(got[0].Parts))
	}
}
