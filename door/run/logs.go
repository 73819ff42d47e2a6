package run

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	podlogs "github.com/bulkhead-project/bulkhead/pod/logs"
)

// logs sends the output of one container or of several.
func (s *server) logs(r *http.Request, out send) error {
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
		if err := e.begun(name); err != nil && !o.follow {
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

// begun says why a container has written nothing: it was never started.
func (e *entry) begun(name string) error {
	c := statusOfContainer(e.status(), name)
	if c.State.Waiting == nil || c.RestartCount > 0 || c.LastTerminationState.Terminated != nil {
		return nil
	}
	return class(api.ErrConflict, fmt.Errorf("container %s of pod %s has not been started: %s (bulkhead events %s tells more)",
		name, e.key(), c.State.Waiting.Reason, e.rec.Pod.Name))
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

// keptLogs is how many log files of a container are kept: the newest, the one
// before for --previous, and one for who follows and is a little behind.
const keptLogs = 3

// dropLogs removes a container's older log files: one that is restarted for ever
// would fill the disk.
func dropLogs(dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look at old logs: %w", err)
	}
	runs := map[int][]string{}
	newest := 0
	for _, f := range list {
		name, _, _ := strings.Cut(f.Name(), ".log")
		n, err := strconv.Atoi(name)
		if path := name + ".log"; err != nil || f.Name() != path && f.Name() != podlogs.Older(path) {
			continue
		}
		runs[n], newest = append(runs[n], f.Name()), max(newest, n)
	}
	var errs []error
	for n, names := range runs {
		for _, name := range names {
			if n <= newest-keptLogs {
				errs = append(errs, os.Remove(filepath.Join(dir, name)))
			}
		}
	}
	return errors.Join(errs...)
}
