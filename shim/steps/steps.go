// Package steps reports how long a shim's calls to the agent took, for an engine that traces. The engine names its call
// in the metadata, the shim keeps the steps of that call, and the engine requests them after the answer. Untraced calls
// carry no metadata.
package steps

import (
	"context"
	"crypto/rand"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/internal/timeline"
)

// key is the metadata key; its value is the call's name.
const key = "bulkhead-trace"

// A shim keeps the steps of at most maxCalls calls that were not requested yet. A name has at most maxName bytes.
const (
	maxCalls = 64
	maxName  = 64
)

// askTimeout bounds the request for a call's steps.
const askTimeout = 2 * time.Second

// Store keeps the steps of calls. The zero value is empty; its methods are safe for concurrent use.
type Store struct {
	mu    sync.Mutex
	calls []call // the oldest first
}

type call struct {
	name  string
	steps []timeline.Step
}

// Intercept is a server interceptor that records the steps of named calls.
func (s *Store) Intercept(
	ctx context.Context, decode ttrpc.Unmarshaler, _ *ttrpc.UnaryServerInfo, serve ttrpc.Method,
) (any, error) {
	name, ok := ttrpc.GetMetadataValue(ctx, key)
	if !ok || name == "" || len(name) > maxName {
		return serve(ctx, decode)
	}
	ctx, took := timeline.With(ctx)
	res, err := serve(ctx, decode)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.calls) == maxCalls {
		s.calls = slices.Delete(s.calls, 0, 1)
	}
	s.calls = append(s.calls, call{name, took.Steps()})
	return res, err
}

// Remove removes and returns a call's steps.
func (s *Store) Remove(r *shimv1.StepsRequest) *shimv1.StepsResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	res := &shimv1.StepsResponse{}
	i := slices.IndexFunc(s.calls, func(c call) bool { return c.name == r.GetTrace() })
	if i < 0 {
		return res
	}
	for _, s := range s.calls[i].steps {
		step := &shimv1.Step{Name: s.Name, Begin: timestamppb.New(s.Begin), Microseconds: s.Took.Microseconds()}
		for _, p := range s.Parts {
			step.Parts = append(step.Parts, &shimv1.Phase{Name: p.Name, Microseconds: p.Took.Microseconds()})
		}
		res.Steps = append(res.Steps, step)
	}
	s.calls = slices.Delete(s.calls, i, i+1)
	return res
}

// asked holds the methods during which a shim calls the agent.
var asked = map[string]bool{"StartSandbox": true, "Create": true, "Start": true, "Delete": true, "Kill": true, "Update": true}

// Client invokes a client's call. If ctx is traced, it adds the call's steps to the trace. The shim's report is as
// hostile as its guest.
func Client(ctx context.Context, req *ttrpc.Request, ext shimv1.ExtensionClient, invoke func() error) error {
	who := timeline.From(ctx)
	if who == nil || !asked[path.Base(req.GetMethod())] {
		return invoke()
	}
	name, began := rand.Text(), time.Now()
	req.Metadata = append(req.Metadata, &ttrpc.KeyValue{Key: key, Value: name})
	err := invoke()
	ended := time.Now()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if res, failed := ext.Steps(ctx, &shimv1.StepsRequest{Trace: name}); failed == nil { // an older shim has no steps
		who.Add(timeline.Within(decode(res), began, ended, agentv1.KnownStep)...)
	}
	return err
}

func decode(res *shimv1.StepsResponse) (steps []timeline.Step) {
	for _, s := range res.GetSteps()[:min(len(res.GetSteps()), timeline.MaxSteps)] {
		step := timeline.Step{Name: s.GetName(), Begin: s.GetBegin().AsTime(), Took: duration(s.GetMicroseconds())}
		for _, p := range s.GetParts()[:min(len(s.GetParts()), timeline.MaxParts)] {
			step.Parts = append(step.Parts, timeline.Part{Name: p.GetName(), Took: duration(p.GetMicroseconds())})
		}
		steps = append(steps, step)
	}
	return steps
}

// duration converts and bounds a duration to one day.
func duration(microseconds int64) time.Duration {
	return time.Duration(min(max(microseconds, 0), int64(24*time.Hour/time.Microsecond))) * time.Microsecond
}
