package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/state"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/manager/logs"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// everything selects the output that a foreground run shows.
var everything = manager.OutputOptions{Follow: true, Whole: true, Tail: -1}

// logs sends the output of one or several containers.
func (s *server) logs(r *http.Request, out send) error {
	e, err := s.find(r.PathValue("ref"))
	if err != nil {
		return err
	}
	o, err := parseOutput(r.URL.Query())
	if err != nil {
		return err
	}
	names := containerNames(e.Original())
	if r.URL.Query().Get("all") == "true" {
		names = allContainers(e.Spec())
	}
	if c := r.URL.Query().Get("container"); c != "" {
		name, err := findContainer(e.Spec(), c)
		if err != nil {
			return err
		}
		if err := e.begun(name); err != nil && !o.Follow {
			return err
		}
		names = []string{name}
	} else if o.Previous {
		if names, err = e.restarted(names); err != nil {
			return err
		}
	}
	if err := out(api.Message{Started: &api.Started{Pod: summary(e), Containers: names}}); err != nil {
		return err
	}
	return e.output(r.Context(), names, o, serial(out))
}

// begun returns an error that explains why a container has no output: it was never started.
func (e *entry) begun(name string) error {
	status := e.Status()
	if state.Queued(status) {
		return errclass.New(errdefs.ErrConflict, "container %s of pod %s has not been started: the pod waits for its turn, "+
			"or ended while it waited (bulkhead describe %s shows more)", name, e.Key(), e.Name())
	}
	c := podstatus.Named(&status, name)
	if c.State.Waiting == nil || c.RestartCount > 0 || c.LastTerminationState.Terminated != nil {
		return nil
	}
	return errclass.New(errdefs.ErrConflict, "container %s of pod %s has not been started: %s (bulkhead events %s shows more)",
		name, e.Key(), c.State.Waiting.Reason, e.Name())
}

// restarted returns the containers that have a previous run.
func (e *entry) restarted(names []string) ([]string, error) {
	var again []string
	status := e.Status()
	for _, name := range names {
		if manager.Previous(status, name) >= 0 {
			again = append(again, name)
		}
	}
	if again == nil {
		err := fmt.Errorf("no container of pod %s has been restarted: there is no previous output", e.Key())
		return nil, errclass.With(errdefs.ErrNotFound, err)
	}
	return again, nil
}

// parseOutput parses api.LogOptions from a query.
func parseOutput(q url.Values) (manager.OutputOptions, error) {
	o := manager.OutputOptions{Follow: q.Get("follow") == "true", Previous: q.Get("previous") == "true", Tail: -1}
	var err error
	if text := q.Get("tail"); text != "" {
		if o.Tail, err = strconv.ParseInt(text, 10, 64); err != nil {
			return o, errclass.New(errdefs.ErrInvalidArgument, "invalid number of lines %q", text)
		}
	}
	if text := q.Get("since"); text != "" {
		if o.Since, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return o, errclass.New(errdefs.ErrInvalidArgument, "invalid time %q", text)
		}
	}
	return o, nil
}

// output sends the output of containers, one after the other. With Follow it sends the output of all containers as
// it arrives.
func (e *entry) output(ctx context.Context, containers []string, o manager.OutputOptions, out send) error {
	one := func(name string) error {
		return e.Output(ctx, name, o, func(l logs.Line) error {
			return out(api.Message{Log: &api.Log{Pod: e.Name(), Container: name, Stream: l.Stream, Time: l.Time, Data: l.Data}})
		})
	}
	if !o.Follow {
		for _, name := range containers {
			if err := one(name); err != nil {
				return err
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	errs := make([]error, len(containers))
	for i, name := range containers {
		wg.Go(func() { errs[i] = one(name) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// serial makes a send function safe for concurrent use.
func serial(out send) send {
	var mu sync.Mutex
	return func(m api.Message) error {
		mu.Lock()
		defer mu.Unlock()
		return out(m)
	}
}
