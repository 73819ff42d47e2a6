// Package steps brings what calls to the agent took from a shim to an engine that traces: the
// engine names its call in the metadata, the shim keeps the steps of such a call, and the engine
// asks for them when it has the answer. Calls that nobody traces carry nothing.
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

// key is the metadata's, whose value is the call's name.
const key = "bulkhead-trace"

// A shim keeps the steps of so many calls that nobody has asked for yet, by names of at most so
// many bytes.
const (
	maxCalls = 64
	maxName  = 64
)

// askTimeout bounds the question for a call's steps.
const askTimeout = 2 * time.Second

// Store keeps calls' steps. Its zero value is empty; its methods may be called at once.
type Store struct {
	mu    sync.Mutex
	calls []call // the oldest first
}

type call struct {
	name  string
	steps []timeline.Step
}

// Intercept is a server's: it has a call that is named tell its steps.
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

// Take answers a question for a call's steps and forgets them.
func (s *Store) Take(r *shimv1.StepsRequest) *shimv1.StepsResponse {
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

// asked are the methods during which a shim calls the agent.
var asked = map[string]bool{"StartSandbox": true, "Create": true, "Start": true, "Delete": true, "Kill": true, "Update": true}

// Client makes a client's call by invoke, and tells whom ctx is traced by what it consisted
// of. What the shim says is as hostile as its guest.
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
	if res, failed := ext.Steps(ctx, &shimv1.StepsRequest{Trace: name}); failed == nil { // an older shim knows of none
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

// duration is one of at most a day, which no call takes.
func duration(microseconds int64) time.Duration {
	return time.Duration(min(max(microseconds, 0), int64(24*time.Hour/time.Microsecond))) * time.Microsecond
}
