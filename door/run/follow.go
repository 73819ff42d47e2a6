package run

import (
	"context"
	"errors"
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
			if err := e.output(ctx, allContainers(e.rec.Pod), everything, out); err != nil {
				cancel(err)
				return
			}
			select {
			case <-e.ended():
			case <-ctx.Done():
				return
			}
			if err := relay(e, out); err != nil {
				cancel(err)
				return
			}
			if e.givenUp() != nil {
				return // which is told in its stead
			}
			status := e.status()
			end := api.Ended{Pod: e.rec.Pod.Name, Phase: string(status.Phase), ExitCode: exitCode(e.rec.Pod, status), Reason: statusText(e.rec.Pod, status), Message: status.Message}
			for _, c := range ownStatuses(e.rec.Pod, status) {
				if t := c.State.Terminated; t != nil && t.ExitCode != 0 && t.Message != "" {
					end.Message = c.Name + ": " + t.Message
				}
			}
			if err := out(api.Message{Ended: &end}); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// serial lets several goroutines send.
func serial(out send) send {
	var mu sync.Mutex
	return func(m api.Message) error {
		mu.Lock()
		defer mu.Unlock()
		return out(m)
	}
}

// output sends what containers have written, one after the other, or with follow
// what all of them write as it comes.
func (e *entry) output(ctx context.Context, containers []string, o outputOptions, out send) error {
	if !o.follow {
		for _, name := range containers {
			if err := e.containerOutput(ctx, name, o, out); err != nil {
				return err
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	errs := make([]error, len(containers))
	for i, name := range containers {
		wg.Go(func() { errs[i] = e.containerOutput(ctx, name, o, out) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
