package calls

import (
	"sync"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// outboxLimit bounds the messages that wait for a reader. The oldest are dropped first.
const outboxLimit = 256

// Outbox passes messages from goroutines that must not block to one reader.
type Outbox struct {
	mu   sync.Mutex
	list []api.Message
	wake chan struct{} // has room for one signal
}

// NewOutbox returns an empty outbox.
func NewOutbox() *Outbox { return &Outbox{wake: make(chan struct{}, 1)} }

// Wake receives a signal after messages were added.
func (o *Outbox) Wake() <-chan struct{} { return o.wake }

// Add adds a message.
func (o *Outbox) Add(m api.Message) {
	o.mu.Lock()
	o.list = append(o.list, m)
	if len(o.list) > outboxLimit {
		o.list = o.list[1:]
	}
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Drain returns the waiting messages, and removes them.
func (o *Outbox) Drain() []api.Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.list
	o.list = nil
	return list
}

// Serial makes a send function safe for concurrent use.
func Serial(out Send) Send {
	var mu sync.Mutex
	return func(m api.Message) error {
		mu.Lock()
		defer mu.Unlock()
		return out(m)
	}
}
