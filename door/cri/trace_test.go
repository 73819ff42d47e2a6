package cri

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// collect serves a trace collector that stores all it receives in a log.
func collect(t *testing.T) (url string, got *lines) {
	t.Helper()
	got = &lines{}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(got, r.Body); err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("traces are sent to %s: %v", r.URL.Path, err)
		}
	}))
	t.Cleanup(collector.Close)
	return collector.URL, got
}

// parents returns the collected spans as "name of the parent > name".
func parents(t *testing.T, got *lines) map[string]bool {
	t.Helper()
	var all tracev1.ExportTraceServiceRequest // concatenated requests decode as one
	if err := proto.Unmarshal([]byte(got.String()), &all); err != nil {
		t.Fatal(err)
	}
	names, below := map[string]string{}, map[string]bool{}
	for do := range 2 {
		for _, resource := range all.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				for _, span := range scope.GetSpans() {
					if do == 0 {
						names[string(span.GetSpanId())] = span.GetName()
					} else {
						below[names[string(span.GetParentSpanId())]+" > "+span.GetName()] = true
					}
				}
			}
		}
	}
	return below
}

// TestTraced: a collector gets the spans of a pod's start as part of the client's trace.
func TestTraced(t *testing.T) {
	collector, got := collect(t)
	const id = "\xab\xcd\xef\x01\xab\xcd\xef\x01\xab\xcd\xef\x01\xab\xcd\xef\x01"
	pod := ""
	t.Run("door", func(t *testing.T) {
		ctx := testdeadline.Context(t, 30*time.Second)
		o := fakeOptions(t, enginetest.New())
		o.Traces = collector
		c := serveDoor(t, o)
		ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", "00-abcdef01abcdef01abcdef01abcdef01-0123456789abcdef-01")
		pod = c.Run(ctx, t, critest.Pod("p"))
		c.Start(ctx, t, pod, critest.Container("c", "true"), critest.Pod("p"))
		c.Remove(ctx, t, pod)
	})
	below := parents(t, got)
	for _, want := range []string{"runtime.v1.RuntimeService/CreateContainer > agent create", "agent create > guest run crun"} {
		if !below[want] {
			t.Errorf("no span %s among %v", want, below)
		}
	}
	for _, want := range []string{
		"runtime.v1.RuntimeService/RunPodSandbox", "runtime.v1.RuntimeService/RemovePodSandbox", "engine network", "engine shim",
		"bulkhead.pod", pod, "bulkhead-cri", id,
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("%d bytes of spans, without %q", len(got.String()), want)
		}
	}
}

// TestNoCollector: a missing collector leads to one log line.
func TestNoCollector(t *testing.T) {
	log := &lines{}
	t.Run("door", func(t *testing.T) {
		ctx, cancel := context.WithCancel(testdeadline.Context(t, 30*time.Second))
		defer cancel()
		o := fakeOptions(t, enginetest.New())
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
		o.Traces = "http://" + freeAddress(ctx, t)
		c := serveDoor(t, o)
		c.Remove(ctx, t, c.Run(ctx, t, critest.Pod("p")))
	})
	if !strings.Contains(log.String(), "traces") {
		t.Errorf("the log: %s", log)
	}
}
