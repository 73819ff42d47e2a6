package run

import (
	"context"
	"sync"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/calls"
	"github.com/bulkhead-project/bulkhead/door/run/refs"
	"github.com/bulkhead-project/bulkhead/door/run/state"
	"github.com/bulkhead-project/bulkhead/door/run/view"
)

// sendOutput sends the output of all containers of the pods. Each pod's end follows its last output.
func (s *server) sendOutput(ctx context.Context, entries []*entry, out calls.Send) error {
	out = calls.Serial(out)
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
func (e *entry) sendUntilEnd(ctx context.Context, out calls.Send) error {
	if err := e.awaitStart(ctx, false, out); err != nil {
		return err
	}
	if err := view.Output(ctx, e.Pod, refs.Containers(e.Original()), view.Everything, out); err != nil {
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
func (e *entry) sendEnd(out calls.Send) error {
	end := view.End(e.Pod)
	return out(api.Message{Ended: &end})
}
