package tracing

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/timeline"
)

// TestStarted: the phases of a start are consecutive below the call's span, with the VM's phases inside the engine's.
func TestStarted(t *testing.T) {
	t.Parallel()
	facts := &engine.Facts{Phases: []engine.Phase{
		{Name: "reserve", Took: 1 * time.Millisecond}, {Name: "shim", Took: 20 * time.Millisecond},
		{Name: "start", Took: 30 * time.Millisecond}, {Name: "total", Took: 60 * time.Millisecond},
		{Name: "machine: machine", Took: 5 * time.Millisecond}, {Name: "machine: channel", Took: 6 * time.Millisecond},
		{Name: "machine: await", Took: 7 * time.Millisecond}, {Name: "machine: configure", Took: 8 * time.Millisecond},
	}}
	type at struct {
		parent      string
		begin, took time.Duration // since the start of the pod's start
	}
	want := map[string]at{
		"engine reserve":    {"call", 0, 1 * time.Millisecond},
		"engine shim":       {"call", 1 * time.Millisecond, 20 * time.Millisecond},
		"machine machine":   {"engine shim", 1 * time.Millisecond, 5 * time.Millisecond},
		"machine channel":   {"engine shim", 6 * time.Millisecond, 6 * time.Millisecond},
		"engine start":      {"call", 21 * time.Millisecond, 30 * time.Millisecond},
		"machine await":     {"engine start", 21 * time.Millisecond, 7 * time.Millisecond},
		"machine configure": {"engine start", 28 * time.Millisecond, 8 * time.Millisecond},
	}
	kept := tracetest.NewInMemoryExporter()
	tr := newTracer(sdk.WithSyncer(kept))
	ctx, call := tr.tracer.Start(t.Context(), "call")
	tr.About(ctx, []slog.Attr{slog.String("pod", "p1")})
	tr.Started(ctx, time.Second, func() (*engine.Facts, error) { return facts, nil })
	tr.Started(ctx, time.Millisecond, func() (*engine.Facts, error) { return facts, nil }) // the start belongs to another call
	tr.Started(ctx, time.Second, func() (*engine.Facts, error) { return nil, errors.New("gone") })
	call.End()
	spans, names := kept.GetSpans(), map[string]string{}
	var begin time.Time
	for _, s := range spans {
		names[s.SpanContext.SpanID().String()] = s.Name
		if s.Name == "engine reserve" {
			begin = s.StartTime
		}
	}
	got := map[string]at{}
	for _, s := range spans {
		if s.Name == "call" {
			if len(s.Attributes) != 1 || s.Attributes[0].Key != "bulkhead.pod" || s.Attributes[0].Value.AsString() != "p1" {
				t.Errorf("attributes %v", s.Attributes)
			}
			continue
		}
		got[s.Name] = at{names[s.Parent.SpanID().String()], s.StartTime.Sub(begin), s.EndTime.Sub(s.StartTime)}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(at{})); diff != "" || len(spans) != len(want)+1 {
		t.Errorf("%d spans, %s", len(spans), diff)
	}
	if err := tr.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSteps: calls to the agent are below the call that made them, and the guest's parts are consecutive inside.
func TestSteps(t *testing.T) {
	t.Parallel()
	kept := tracetest.NewInMemoryExporter()
	tr := newTracer(sdk.WithSyncer(kept))
	ctx, call := tr.tracer.Start(t.Context(), "call")
	recording, steps := tr.Record(ctx)
	begin := time.Unix(1000, 0)
	timeline.From(recording).Add(timeline.Step{
		Name: "agent create", Begin: begin, Took: 9, Parts: []timeline.Part{{Name: "a", Took: 2}, {Name: "b", Took: 3}},
	})
	tr.Steps(ctx, steps)
	call.End()
	names, got := map[string]string{}, map[string][3]any{}
	for _, s := range kept.GetSpans() {
		names[s.SpanContext.SpanID().String()] = s.Name
	}
	for _, s := range kept.GetSpans() {
		if s.Name != "call" {
			got[s.Name] = [3]any{names[s.Parent.SpanID().String()], s.StartTime.Sub(begin), s.EndTime.Sub(s.StartTime)}
		}
	}
	want := map[string][3]any{
		"agent create": {"call", time.Duration(0), time.Duration(9)},
		"guest a":      {"agent create", time.Duration(0), time.Duration(2)},
		"guest b":      {"agent create", time.Duration(2), time.Duration(3)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestNone: without an endpoint, no spans are created and no facts are requested.
func TestNone(t *testing.T) {
	t.Parallel()
	tr, err := New(t.Context(), "", slog.Default())
	if tr != nil || err != nil || len(tr.ServerOptions()) > 0 {
		t.Errorf("%v, %v", tr, err)
	}
	tr.About(t.Context(), nil)
	ctx, steps := tr.Record(t.Context())
	if tr.Steps(ctx, steps); timeline.From(ctx) != nil {
		t.Error("steps are recorded")
	}
	tr.Started(t.Context(), time.Second, func() (*engine.Facts, error) { panic("asked") })
	if err := tr.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
