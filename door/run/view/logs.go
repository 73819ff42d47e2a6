package view

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
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/calls"
	"github.com/bulkhead-project/bulkhead/door/run/refs"
	"github.com/bulkhead-project/bulkhead/door/run/state"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/manager/logs"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// Everything selects the output that a foreground run shows.
var Everything = manager.OutputOptions{Follow: true, Whole: true, Tail: -1}

// logs sends the output of one or several containers.
func (s *Service) logs(r *http.Request, out calls.Send) error {
	e, err := refs.Find(s.Pods, r.PathValue("ref"))
	if err != nil {
		return err
	}
	o, err := parseOutput(r.URL.Query())
	if err != nil {
		return err
	}
	names := containerNames(e.Original())
	if r.URL.Query().Get("all") == "true" {
		names = refs.Containers(e.Spec())
	}
	if c := r.URL.Query().Get("container"); c != "" {
		name, err := refs.ContainerName(e.Spec(), c)
		if err != nil {
			return err
		}
		if err := begun(e, name); err != nil && !o.Follow {
			return err
		}
		names = []string{name}
	} else if o.Previous {
		if names, err = restarted(e, names); err != nil {
			return err
		}
	}
	if err := out(api.Message{Started: &api.Started{Pod: Summary(e), Containers: names}}); err != nil {
		return err
	}
	return Output(r.Context(), e, names, o, calls.Serial(out))
}

// begun returns an error that explains why a container has no output: it was never started.
func begun(e *manager.Pod, name string) error {
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
func restarted(e *manager.Pod, names []string) ([]string, error) {
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

// Output sends the output of containers, one after the other. With Follow it sends the output of all containers as
// it arrives.
func Output(ctx context.Context, e *manager.Pod, containers []string, o manager.OutputOptions, out calls.Send) error {
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

func containerNames(p *corev1.Pod) []string {
	var names []string
	for _, c := range p.Spec.Containers {
		names = append(names, c.Name)
	}
	return names
}
