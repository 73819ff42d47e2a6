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

	"google.golang.org/grpc/metadata"

	"github.com/bulkhead-project/bulkhead/door/cri/critest"
	"github.com/bulkhead-project/bulkhead/engine/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
)

// collect serves a collector of traces, whose log is what it was sent.
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

// TestTraced: a collector gets the spans of a pod's start, in the trace of the client.
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
		c.Remove(ctx, t, pod)
	})
	for _, want := range []string{
		"runtime.v1.RuntimeService/RunPodSandbox", "runtime.v1.RuntimeService/RemovePodSandbox", "engine network", "engine shim",
		"bulkhead.pod", pod, "bulkhead-cri", id,
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("%d bytes of spans, without %q", len(got.String()), want)
		}
	}
}

// TestNoCollector: a collector that is not there costs a line of the log.
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
