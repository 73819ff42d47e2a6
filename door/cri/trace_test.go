package cri

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/bulkhead-project/bulkhead/door/cri/critest"
	"github.com/bulkhead-project/bulkhead/engine/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
)

// TestTraced: a collector gets the spans of a pod's start, in the trace of the client.
func TestTraced(t *testing.T) {
	var mu sync.Mutex
	var got bytes.Buffer
	path := ""
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		path = r.URL.Path
		got.Write(body)
	}))
	defer collector.Close()
	const id = "\xab\xcd\xef\x01\xab\xcd\xef\x01\xab\xcd\xef\x01\xab\xcd\xef\x01"
	pod := ""
	t.Run("door", func(t *testing.T) {
		ctx := testdeadline.Context(t, 30*time.Second)
		o := fakeOptions(t, enginetest.New())
		o.Traces = collector.URL
		c := serveDoor(t, o)
		ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", "00-abcdef01abcdef01abcdef01abcdef01-0123456789abcdef-01")
		pod = c.Run(ctx, t, critest.Pod("p"))
		c.Remove(ctx, t, pod)
	})
	mu.Lock()
	defer mu.Unlock()
	if path != "/v1/traces" {
		t.Errorf("sent to %q", path)
	}
	for _, want := range []string{
		"runtime.v1.RuntimeService/RunPodSandbox", "runtime.v1.RuntimeService/RemovePodSandbox", "engine network", "engine shim",
		"bulkhead.pod", pod, "bulkhead-cri", id,
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("%d bytes of spans, without %q", got.Len(), want)
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
