package run

import (
	"sync"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// outboxLimit bounds the messages that wait for a reader; the oldest go first.
const outboxLimit = 256

// outbox passes messages from goroutines that must not block to one reader.
type outbox struct {
	mu   sync.Mutex
	list []api.Message
	wake chan struct{} // has room for one
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

func (o *outbox) put(m api.Message) {
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

func (o *outbox) take() []api.Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.list
	o.list = nil
	return list
}
