// Package events publishes a front's events to containerd, in order and with retries.
package events

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Topics of events, the same in all versions of containerd.
const (
	Create      = "/tasks/create"
	Start       = "/tasks/start"
	OOM         = "/tasks/oom"
	Exit        = "/tasks/exit"
	Delete      = "/tasks/delete"
	ExecAdded   = "/tasks/exec-added"
	ExecStarted = "/tasks/exec-started"
	Paused      = "/tasks/paused"
	Resumed     = "/tasks/resumed"
)

// Bounds of a Publisher.
const (
	// most is the number of events that wait while containerd is away. Beyond it, the oldest are lost.
	most = 4096
	// patience bounds one attempt. Containerd's own shims use the same.
	patience = 5 * time.Second
	// refusals is how often an event is sent that containerd refuses.
	refusals = 5
)

// pauses are the times between attempts while containerd is away. The last one repeats.
var pauses = []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second}

// sender sends one event. The error matches errRefused if containerd answered and did not accept it.
type sender interface {
	send(ctx context.Context, e *types.Envelope) error
	close()
}

// Publisher sends events one after another. An event stays first in the queue until containerd has it, so events arrive
// in order, some of them twice. Its methods are safe for concurrent use.
type Publisher struct {
	namespace string
	to        sender
	log       *slog.Logger
	cancel    context.CancelFunc
	ended     chan struct{}

	mu     sync.Mutex
	queue  []*types.Envelope
	lost   int
	closed bool
	wake   chan struct{} // has a value while run has to look at the queue
}

func newPublisher(namespace string, to sender, log *slog.Logger) *Publisher {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Publisher{namespace: namespace, to: to, log: log, cancel: cancel, ended: make(chan struct{}), wake: make(chan struct{}, 1)}
	go p.run(ctx)
	return p
}

// Publish queues an event and returns at once.
func (p *Publisher) Publish(topic string, m proto.Message) {
	event, err := Any(m)
	if err != nil {
		p.log.Error("drop an event", "topic", topic, "error", err)
		return
	}
	e := &types.Envelope{Timestamp: timestamppb.Now(), Namespace: p.namespace, Topic: topic, Event: event}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) >= most {
		// The first event may be under way.
		p.queue = append(p.queue[:1], p.queue[2:]...)
		p.lost++
	}
	p.queue = append(p.queue, e)
	p.signal()
}

// signal wakes run. The caller holds mu.
func (p *Publisher) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Close sends the queued events until ctx ends, and ends the publisher. The error says how many events were lost.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.signal()
	p.mu.Unlock()
	select {
	case <-p.ended:
	case <-ctx.Done():
	}
	p.cancel()
	<-p.ended
	p.to.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if lost := p.lost + len(p.queue); lost > 0 {
		return fmt.Errorf("publish events: %d were lost", lost)
	}
	return nil
}

// run sends the events until the publisher is closed and the queue empty, or ctx ends.
func (p *Publisher) run(ctx context.Context) {
	defer close(p.ended)
	for {
		e, last := p.first()
		if e == nil {
			if last {
				return
			}
			select {
			case <-p.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if !p.deliver(ctx, e) {
			return
		}
		p.mu.Lock()
		p.queue = p.queue[1:]
		p.mu.Unlock()
	}
}

// first returns the first event, or nil and whether there will be no more.
func (p *Publisher) first() (e *types.Envelope, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) > 0 {
		return p.queue[0], false
	}
	p.queue = nil // frees the memory
	return nil, p.closed
}

// Any packs m as containerd does, with the bare name of the type as the URL.
func Any(m proto.Message) (*anypb.Any, error) {
	value, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return &anypb.Any{TypeUrl: string(m.ProtoReflect().Descriptor().FullName()), Value: value}, nil
}
