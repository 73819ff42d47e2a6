package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/bulkhead-project/bulkhead/supervisor/api"
)

// follow sends the output of every pod's containers, and each pod's end after
// the last of its output.
func (s *Supervisor) follow(ctx context.Context, entries []*entry, out send) error {
	out = serial(out)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, e := range entries {
		wg.Go(func() {
			if err := e.output(ctx, containerNames(e.rec.Pod), true, out); err != nil {
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

// output sends what containers have written, and with follow what they will.
func (e *entry) output(ctx context.Context, containers []string, follow bool, out send) error {
	var wg sync.WaitGroup
	errs := make([]error, len(containers))
	for i, name := range containers {
		wg.Go(func() { errs[i] = e.containerOutput(ctx, name, follow, out) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *Supervisor) logs(r *http.Request, out send) error {
	e, err := s.pods.find(r.PathValue("ref"))
	if err != nil {
		return err
	}
	names := containerNames(e.rec.Pod)
	if c := r.URL.Query().Get("container"); c != "" {
		if !contains(names, c) {
			return fmt.Errorf("container %q of pod %s: %w: it has %v", c, e.key(), api.ErrNotFound, names)
		}
		names = []string{c}
	}
	if err := out(api.Message{Started: &api.Started{Pod: summary(e), Containers: names}}); err != nil {
		return err
	}
	return e.output(r.Context(), names, r.URL.Query().Get("follow") == "true", serial(out))
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
