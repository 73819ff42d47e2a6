// Package tracing has OpenTelemetry see the calls of the door of kubelets, and what the start
// of a pod is made of. A kubelet that traces has the spans of one pod be one trace.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/timeline"
	"github.com/bulkhead-project/bulkhead/internal/version"
)

// Tracer makes spans and sends them. A nil Tracer does nothing.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// closeTimeout bounds the sending of the last spans.
const closeTimeout = 5 * time.Second

// New sends to an endpoint of OTLP over HTTP, "http://127.0.0.1:4318"; empty is none. Spans that
// nobody takes are dropped, and the log says so.
func New(ctx context.Context, endpoint string, log *slog.Logger) (*Tracer, error) {
	if endpoint == "" {
		return nil, nil
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, fmt.Errorf("send traces: %w", err)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces" // as OTEL_EXPORTER_OTLP_ENDPOINT means it
	}
	to, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()))
	if err != nil {
		return nil, fmt.Errorf("send traces: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("send traces", "error", err) }))
	return newTracer(sdk.WithBatcher(to)), nil
}

func newTracer(to sdk.TracerProviderOption) *Tracer {
	p := sdk.NewTracerProvider(to, sdk.WithResource(resource.NewSchemaless(
		attribute.String("service.name", "bulkhead-cri"), attribute.String("service.version", version.Version),
	)))
	return &Tracer{p, p.Tracer("github.com/bulkhead-project/bulkhead/door/cri")}
}

// ServerOptions have a server make a span of each call.
func (t *Tracer) ServerOptions() []grpc.ServerOption {
	if t == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithPropagators(propagation.TraceContext{}),
	))}
}

// About says whom the span of a call is about.
func (t *Tracer) About(ctx context.Context, attrs []slog.Attr) {
	span := trace.SpanFromContext(ctx)
	if t == nil || !span.IsRecording() {
		return
	}
	for _, a := range attrs {
		span.SetAttributes(attribute.String("bulkhead."+a.Key, a.Value.String()))
	}
}

// Started makes spans of the phases of a pod's start, below that of the call that has asked
// for it and took so long. Facts are asked for only if somebody sees the spans.
func (t *Tracer) Started(ctx context.Context, took time.Duration, facts func() (*engine.Facts, error)) {
	if t == nil || !trace.SpanFromContext(ctx).IsRecording() {
		return
	}
	ended := time.Now()
	f, err := facts()
	if err != nil {
		return // the pod is gone again
	}
	t.phases(ctx, ended, took, f.Phases)
}

// Follow has what a call does tell its steps, if somebody sees its span.
func (t *Tracer) Follow(ctx context.Context) (context.Context, *timeline.Recorder) {
	if t == nil || !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, nil
	}
	return timeline.With(ctx)
}

// Steps makes spans of what a call consisted of, below its own: those of its calls to the
// agent, and below these the parts that the guest tells of, one after the other.
func (t *Tracer) Steps(ctx context.Context, took *timeline.Recorder) {
	for _, s := range took.Steps() {
		below := t.span(ctx, s.Name, s.Begin, s.Took)
		at := s.Begin
		for _, p := range s.Parts {
			t.span(below, "guest "+p.Name, at, p.Took)
			at = at.Add(p.Took)
		}
	}
}

// The phases of the engine during which those of the machine are.
const (
	shimPhase  = "shim"
	startPhase = "start"
)

// phases makes spans. The engine's phases follow each other, and end with the start; of
// those of the machine, of which only the durations are known, each is put after the one before,
// in the engine's phase that waits for it. A start that took longer than the call has not begun
// with it: it is another call's.
func (t *Tracer) phases(ctx context.Context, ended time.Time, took time.Duration, all []engine.Phase) {
	var own, machine []engine.Phase
	var total time.Duration
	for _, p := range all {
		name, of := strings.CutPrefix(p.Name, "machine: ")
		switch {
		case of:
			machine = append(machine, engine.Phase{Name: name, Took: p.Took})
		case p.Name == "total":
			total = p.Took
		default:
			own = append(own, p)
		}
	}
	if total > took {
		return
	}
	at := ended.Add(-total)
	for _, p := range own {
		below := t.span(ctx, "engine "+p.Name, at, p.Took)
		inner := at
		for _, m := range machine {
			if (p.Name == shimPhase) == begins(m.Name) && (p.Name == shimPhase || p.Name == startPhase) {
				t.span(below, "machine "+m.Name, inner, m.Took)
				inner = inner.Add(m.Took)
			}
		}
		at = at.Add(p.Took)
	}
}

// begins tells of a machine's phase whether it is one of those that run from the shim's
// start on, while the engine goes on.
func begins(phase string) bool { return phase == "machine" || phase == "channel" }

func (t *Tracer) span(ctx context.Context, name string, at time.Time, took time.Duration) context.Context {
	ctx, span := t.tracer.Start(ctx, name, trace.WithTimestamp(at))
	span.End(trace.WithTimestamp(at.Add(took)))
	return ctx
}

// Close sends what there is left, and no more.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send traces: %w", err)
	}
	return nil
}
