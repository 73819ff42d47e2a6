package supervisor

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/bulkhead-project/bulkhead/supervisor/api"
)

// logs sends the output of one container or of several.
func (s *Supervisor) logs(r *http.Request, out send) error {
	e, err := s.pods.find(r.PathValue("ref"))
	if err != nil {
		return err
	}
	o, err := parseOutput(r.URL.Query())
	if err != nil {
		return err
	}
	names := containerNames(e.rec.Pod)
	if r.URL.Query().Get("all") == "true" {
		names = allContainers(e.spec())
	}
	if c := r.URL.Query().Get("container"); c != "" {
		name, err := findContainer(e.spec(), c)
		if err != nil {
			return err
		}
		names = []string{name}
	} else if o.previous {
		if names, err = e.restarted(names); err != nil {
			return err
		}
	}
	if err := out(api.Message{Started: &api.Started{Pod: summary(e), Containers: names}}); err != nil {
		return err
	}
	return e.output(r.Context(), names, o, serial(out))
}

// restarted are those of a pod's containers that have a previous run.
func (e *entry) restarted(names []string) ([]string, error) {
	var again []string
	status := e.status()
	for _, name := range names {
		if restarts(status, name) > 0 {
			again = append(again, name)
		}
	}
	if len(again) == 0 {
		return nil, class(api.ErrNotFound, fmt.Errorf("no container of pod %s has been restarted: there is no previous output", e.key()))
	}
	return again, nil
}

// parseOutput reads api.LogOptions from a query.
func parseOutput(q url.Values) (outputOptions, error) {
	o := outputOptions{follow: q.Get("follow") == "true", previous: q.Get("previous") == "true", tail: -1}
	var err error
	if text := q.Get("tail"); text != "" {
		if o.tail, err = strconv.ParseInt(text, 10, 64); err != nil {
			return o, fmt.Errorf("%w number of lines %q", api.ErrInvalid, text)
		}
	}
	if text := q.Get("since"); text != "" {
		if o.since, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return o, fmt.Errorf("%w time %q", api.ErrInvalid, text)
		}
	}
	return o, nil
}
