// Package tracing creates OpenTelemetry spans for the calls of the door for kubelets and for the phases of a pod's
// start. If the kubelet traces too, the spans belong to its trace.
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

// Tracer creates spans and exports them. A nil Tracer does nothing.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// closeTimeout bounds the export of the last spans.
const closeTimeout = 5 * time.Second

// New returns a Tracer that exports to an OTLP/HTTP endpoint such as "http://127.0.0.1:4318", or nil if it is empty.
// Spans that cannot be exported are dropped and logged.
func New(ctx context.Context, endpoint string, log *slog.Logger) (*Tracer, error) {
	if endpoint == "" {
		return nil, nil
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, fmt.Errorf("send traces: %w", err)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces" // as for OTEL_EXPORTER_OTLP_ENDPOINT
	}
	to, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()))
	if err != nil {
		return nil, fmt.Errorf("send traces: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("cannot send traces", "error", err) }))
	return newTracer(sdk.WithBatcher(to)), nil
}

func newTracer(to sdk.TracerProviderOption) *Tracer {
	p := sdk.NewTracerProvider(to, sdk.WithResource(resource.NewSchemaless(
		attribute.String("service.name", "bulkhead-cri"), attribute.String("service.version", version.Version),
	)))
	return &Tracer{p, p.Tracer("github.com/bulkhead-project/bulkhead/door/cri")}
}

// ServerOptions returns options that create a span for each call of a server.
func (t *Tracer) ServerOptions() []grpc.ServerOption {
	if t == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithPropagators(propagation.TraceContext{}),
	))}
}

// About adds attributes to the span of a call.
func (t *Tracer) About(ctx context.Context, attrs []slog.Attr) {
	span := trace.SpanFromContext(ctx)
	if t == nil || !span.IsRecording() {
		return
	}
	for _, a := range attrs {
		span.SetAttributes(attribute.String("bulkhead."+a.Key, a.Value.String()))
	}
}

// Started adds spans for the phases of a pod's start to the span of its call, which took that long. It calls facts only
// if the span is recorded.
func (t *Tracer) Started(ctx context.Context, took time.Duration, facts func() (*engine.Facts, error)) {
	if t == nil || !trace.SpanFromContext(ctx).IsRecording() {
		return
	}
	ended := time.Now()
	f, err := facts()
	if err != nil {
		return // the pod was removed
	}
	t.phases(ctx, ended, took, f.Phases)
}

// Record returns a context that records the steps of a call, if its span is recorded.
func (t *Tracer) Record(ctx context.Context) (context.Context, *timeline.Recorder) {
	if t == nil || !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, nil
	}
	return timeline.With(ctx)
}

// Steps adds spans for the calls to the agent to the span of a call. Below each are the parts that the guest reports,
// in sequence.
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

// The engine's phases that contain the VM's phases.
const (
	shimPhase  = "shim"
	startPhase = "start"
)

// phases creates the spans of a start. The engine's phases are consecutive and end with the start. Only the durations
// of the VM's phases are known, so they are placed one after another within the engine's phase that waits for them. If
// the start took longer than the call, it belongs to an earlier call.
func (t *Tracer) phases(ctx context.Context, ended time.Time, took time.Duration, all []engine.Phase) {
	var own, vm []engine.Phase
	var total time.Duration
	for _, p := range all {
		name, of := strings.CutPrefix(p.Name, "machine: ")
		switch {
		case of:
			vm = append(vm, engine.Phase{Name: name, Took: p.Took})
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
		for _, m := range vm {
			if (p.Name == shimPhase) == startsWithShim(m.Name) && (p.Name == shimPhase || p.Name == startPhase) {
				t.span(below, "machine "+m.Name, inner, m.Took)
				inner = inner.Add(m.Took)
			}
		}
		at = at.Add(p.Took)
	}
}

// startsWithShim reports whether a VM's phase starts with the shim and runs beside the engine's work.
func startsWithShim(phase string) bool { return phase == "machine" || phase == "channel" }

func (t *Tracer) span(ctx context.Context, name string, at time.Time, took time.Duration) context.Context {
	ctx, span := t.tracer.Start(ctx, name, trace.WithTimestamp(at))
	span.End(trace.WithTimestamp(at.Add(took)))
	return ctx
}

// Close exports the remaining spans.
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
