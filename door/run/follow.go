package run

import (
	"context"
	"sync"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// follow sends the output of every pod's containers, and each pod's end after
// the last of its output.
func (s *server) follow(ctx context.Context, entries []*entry, out send) error {
	out = serial(out)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, e := range entries {
		wg.Go(func() {
			if err := e.toTheEnd(ctx, out); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// toTheEnd sends the output of one pod's containers until it has ended, and that.
func (e *entry) toTheEnd(ctx context.Context, out send) error {
	if err := e.output(ctx, allContainers(e.Given()), everything, out); err != nil {
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
	if e.givenUp() == nil { // else that is told in its stead
		return e.tellEnd(out)
	}
	return nil
}

// tellEnd sends how the pod ended.
func (e *entry) tellEnd(out send) error {
	status := e.Status()
	end := api.Ended{
		Pod: e.Name(), Phase: string(status.Phase), ExitCode: exitCode(e.Given(), status),
		Reason: statusText(e.Given(), status), Message: status.Message,
	}
	for _, c := range ownStatuses(e.Given(), status) {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 && t.Message != "" {
			end.Message = c.Name + ": " + t.Message
		}
	}
	return out(api.Message{Ended: &end})
}
