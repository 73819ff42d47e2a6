package events

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	api "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/types"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// fake records events. It fails as the errors in fails say, one for each attempt.
type fake struct {
	mu     sync.Mutex
	fails  []error
	got    []string
	signal chan struct{}
	closed bool
}

func (f *fake) send(ctx context.Context, e *types.Envelope) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.signal != nil {
		f.signal <- struct{}{}
	}
	if len(f.fails) > 0 {
		err := f.fails[0]
		f.fails = f.fails[1:]
		if err != nil {
			return err
		}
	}
	f.got = append(f.got, e.Topic)
	return ctx.Err()
}

func (f *fake) close() { f.closed = true }

func publish(p *Publisher, topics ...string) {
	for _, topic := range topics {
		p.Publish(topic, &api.TaskOOM{ContainerID: "c"})
	}
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestOrder: events arrive in order, also if containerd is away for some attempts.
func TestOrder(t *testing.T) {
	away := errors.New("connection refused")
	for name, fails := range map[string][]error{
		"at once":           nil,
		"away at first":     {away, away},
		"away later":        {nil, away, nil, away},
		"refused, then not": {errRefused, errRefused, nil},
	} {
		f := &fake{fails: fails}
		p := newPublisher("n", f, quiet)
		publish(p, Create, Start, Exit, Delete)
		if err := p.Close(bounded(t)); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}
		if want := []string{Create, Start, Exit, Delete}; !slices.Equal(f.got, want) || !f.closed {
			t.Errorf("%s: got %q, closed %v, want %q", name, f.got, f.closed, want)
		}
	}
}

// TestRefused: an event that containerd never accepts does not hold up the others.
func TestRefused(t *testing.T) {
	f := &fake{fails: slices.Repeat([]error{fmt.Errorf("containerd %w it", errRefused)}, refusals)}
	p := newPublisher("n", f, quiet)
	publish(p, Create, Start)
	if err := p.Close(bounded(t)); err == nil {
		t.Error("Close: got nil, want an error about a lost event")
	}
	if want := []string{Start}; !slices.Equal(f.got, want) {
		t.Errorf("got %q, want %q", f.got, want)
	}
}

// TestAway: while containerd is away, Publish does not block, the oldest events are lost, and Close ends with its context.
func TestAway(t *testing.T) {
	f := &fake{fails: slices.Repeat([]error{errors.New("away")}, 1000), signal: make(chan struct{}, 1000)}
	p := newPublisher("n", f, quiet)
	publish(p, Create)
	<-f.signal
	for i := range most + 10 {
		publish(p, fmt.Sprint(i))
	}
	p.mu.Lock()
	first, second, n := p.queue[0].Topic, p.queue[1].Topic, len(p.queue)
	p.mu.Unlock()
	if n != most || first != Create || second != "11" {
		t.Errorf("%d events wait, the first ones %s and %s, want %d, %s and 11", n, first, second, most, Create)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Close(ctx); err == nil {
		t.Error("Close: got nil, want an error about lost events")
	}
}
