package run

import (
	"context"
	"sync"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/state"
)

// sendOutput sends the output of all containers of the pods. Each pod's end follows its last output.
func (s *server) sendOutput(ctx context.Context, entries []*entry, out send) error {
	out = serial(out)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, e := range entries {
		wg.Go(func() {
			if err := e.sendUntilEnd(ctx, out); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	for _, e := range entries { // after the end of the failed pod, because its exit code counts
		if ctx.Err() == nil && state.Queued(e.Status()) {
			if err := e.sendEnd(out); err != nil {
				return err
			}
		}
	}
	return context.Cause(ctx)
}

// sendUntilEnd sends the output of one pod's containers until the pod has ended, then its end. It sends no end for a
// pod that never started.
func (e *entry) sendUntilEnd(ctx context.Context, out send) error {
	if err := e.awaitStart(ctx, false, out); err != nil {
		return err
	}
	if err := e.output(ctx, allContainers(e.Original()), everything, out); err != nil {
		return err
	}
	select {
	case <-e.Ended():
	case <-ctx.Done():
		return nil
	}
	if err := relay(e, out); err != nil {
		return err
	}
	if e.givenUp() == nil && !state.Queued(e.Status()) { // otherwise its error or a later end is sent instead
		return e.sendEnd(out)
	}
	return nil
}

// sendEnd sends how the pod ended.
func (e *entry) sendEnd(out send) error {
	end := e.endMessage()
	return out(api.Message{Ended: &end})
}

// endMessage describes the pod's end.
func (e *entry) endMessage() api.Ended {
	given, status := e.Original(), e.Status()
	return api.Ended{
		Pod: e.Name(), Phase: string(status.Phase), ExitCode: state.ExitCode(given, status),
		Reason: state.Text(given, status), Message: state.EndMessage(given, status),
	}
}

// outboxLimit bounds the messages that wait for a reader. The oldest are dropped first.
const outboxLimit = 256

// outbox passes messages from goroutines that must not block to one reader.
type outbox struct {
	mu   sync.Mutex
	list []api.Message
	wake chan struct{} // has room for one signal
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

func (o *outbox) add(m api.Message) {
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

func (o *outbox) drain() []api.Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.list
	o.list = nil
	return list
}
