package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/manager/logs"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// logOptions are the options of a request for logs.
type logOptions struct {
	manager.OutputOptions
	timestamps bool
	limit      int64 // bytes; negative for no limit
	stream     string
}

// parseLogs parses a query with the parameters of the API's PodLogOptions.
func parseLogs(q url.Values) (o logOptions, err error) {
	o.Tail, o.limit = -1, -1
	number := func(name string, least int64, to *int64) {
		text := q.Get(name)
		if text == "" || err != nil {
			return
		}
		n, bad := strconv.ParseInt(text, 10, 64)
		if bad != nil || n < least {
			err = fail(http.StatusBadRequest, "%s %q must be a number of at least %d", name, text, least)
			return
		}
		*to = n
	}
	o.Follow, o.Previous, o.timestamps = wants(q, "follow"), wants(q, "previous"), wants(q, "timestamps")
	o.OneRun = true
	number("tailLines", 0, &o.Tail)
	number("limitBytes", 1, &o.limit)
	var seconds int64
	number("sinceSeconds", 1, &seconds)
	if seconds > 0 {
		o.Since = time.Now().Add(-time.Duration(seconds) * time.Second)
	}
	if text := q.Get("sinceTime"); text != "" && err == nil {
		at, bad := time.Parse(time.RFC3339, text)
		if bad != nil {
			return o, fail(http.StatusBadRequest, "sinceTime %q must be a time in the format of RFC 3339", text)
		}
		o.Since = at
	}
	switch o.stream = q.Get("stream"); o.stream {
	case "", corev1.LogStreamAll:
		o.stream = ""
	case corev1.LogStreamStdout:
		o.stream = "stdout"
	case corev1.LogStreamStderr:
		o.stream = "stderr"
	default:
		return o, fail(http.StatusBadRequest, "stream %q must be All, Stdout or Stderr", o.stream)
	}
	return o, err
}

// errEnough ends an output at the limit of bytes.
var errEnough = errors.New("the limit is reached")

func (s *Server) logs(w http.ResponseWriter, r *http.Request) error {
	o, err := parseLogs(r.URL.Query())
	if err != nil {
		return err
	}
	p, err := s.pod(r)
	if err != nil {
		return err
	}
	name := r.PathValue("container")
	if err := hasLogs(p, name); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := &lines{w: w, o: o}
	err = p.Output(ctx, name, o.OutputOptions, out.line)
	switch {
	case errors.Is(err, errEnough), errors.Is(err, context.Canceled):
		return nil
	case errors.Is(err, errdefs.ErrNotFound):
		return fail(http.StatusBadRequest, "previous terminated container %q in pod %q not found", name, p.Name())
	case err != nil && out.begun:
		s.log.Info("logs were cut off", "pod", p.Key(), "error", err)
		return nil
	}
	return err
}

// hasLogs returns an error for a container that has never run, as its status says. The runtime may have removed the
// container already; its logs are kept.
func hasLogs(p *manager.Pod, name string) error {
	status := p.Status()
	c := podstatus.Named(&status, name)
	ended := func(s corev1.ContainerState) bool { return s.Terminated != nil && s.Terminated.ContainerID != "" }
	switch {
	case c.Name == "":
		return fail(http.StatusNotFound, "container %q not found in pod %q", name, p.Name())
	case c.State.Running != nil || ended(c.State) || ended(c.LastTerminationState):
		return nil
	case c.State.Terminated != nil:
		return fail(http.StatusBadRequest, "container %q in pod %q is terminated", name, p.Name())
	}
	reason := pod.ReasonCreating
	if c.State.Waiting != nil {
		reason = c.State.Waiting.Reason
	}
	return fail(http.StatusBadRequest, "container %q in pod %q is waiting to start: %s", name, p.Name(), reason)
}

// lines writes log lines to a client.
type lines struct {
	w     http.ResponseWriter
	o     logOptions
	begun bool
	inner bool // the last line was incomplete: the runtime splits long lines
}

func (l *lines) line(one logs.Line) error {
	if l.o.stream != "" && l.o.stream != one.Stream {
		return nil
	}
	text := one.Data
	if l.o.timestamps && !l.inner {
		text = append([]byte(one.Time.UTC().Format(time.RFC3339Nano)+" "), text...)
	}
	l.inner = len(one.Data) > 0 && one.Data[len(one.Data)-1] != '\n'
	enough := l.o.limit >= 0 && int64(len(text)) >= l.o.limit
	if enough {
		text = text[:l.o.limit]
	} else if l.o.limit >= 0 {
		l.o.limit -= int64(len(text))
	}
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "text/plain")
	}
	if _, err := l.w.Write(text); err != nil {
		return err
	}
	if l.o.Follow {
		if err := http.NewResponseController(l.w).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
	}
	if enough {
		return errEnough
	}
	return nil
}
