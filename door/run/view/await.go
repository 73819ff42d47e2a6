package view

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/jsonpath"
	"github.com/bulkhead-project/bulkhead/door/run/refs"
	"github.com/bulkhead-project/bulkhead/door/run/state"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod/manager"
)

// await answers when a pod meets a condition, or at once if the pod has ended and cannot meet it. The client sets
// the timeout by ending its call.
func (s *Service) await(r *http.Request, req api.AwaitRequest) (any, error) {
	e, err := refs.Find(s.Pods, r.PathValue("ref"))
	if removed, ok := s.Pods.Removed(types.UID(r.PathValue("ref"))); ok && req.For == "running" {
		e, err = removed, nil // run -d --rm --wait of a pod that ended at once
	}
	if err != nil {
		return nil, err
	}
	result := api.Result{Pod: e.Key()}
	switch req.For {
	case "delete":
		return result, awaitGone(r.Context(), s.Pods, e)
	case "running":
		result.Failed, err = awaitRunning(r.Context(), e)
		return result, err
	}
	met, err := condition(req.For)
	if err != nil {
		return nil, err
	}
	for {
		ended, gone := e.Ended(), e.Removed()
		_, changed := e.Watch()
		over := e.HasEnded()
		yes, err := met(e)
		switch {
		case err != nil:
			return nil, err
		case yes:
			return result, nil
		case gone:
			return nil, errclass.New(errdefs.ErrNotFound, "pod %s was removed before it met %s", e.Key(), req.For)
		case over:
			return nil, errclass.New(errdefs.ErrConflict, "pod %s has ended (%s) and does not meet %s",
				e.Key(), state.Text(e.Original(), e.Status()), req.For)
		}
		select {
		case <-changed:
		case <-ended:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// awaitGone waits until the pod is removed.
func awaitGone(ctx context.Context, pods *manager.Manager, e *manager.Pod) error {
	for {
		next := pods.News()
		if e.Removed() {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitRunning waits until the pod is up or has succeeded. It returns the pod's failure, if it failed.
func awaitRunning(ctx context.Context, e *manager.Pod) (*api.Ended, error) {
	var up state.Up
	for {
		ended, gone := e.Ended(), e.Removed()
		status, changed := e.Watch()
		over := e.HasEnded()
		failed := state.Crashing(e.Original(), status)
		switch {
		case status.Phase == corev1.PodSucceeded:
			return nil, nil
		case over && !state.Queued(status):
			end := End(e)
			return &end, nil
		case gone:
			return nil, errclass.New(errdefs.ErrNotFound, "pod %s was removed before it ran", e.Key())
		case failed != nil:
			return failed, nil
		}
		left, is := up.Left(e.Original(), status, time.Now())
		if is && left <= 0 {
			return nil, nil
		}
		var held <-chan time.Time
		if is {
			held = time.After(left)
		}
		select {
		case <-changed:
		case <-held:
		case <-ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// condition parses the condition of an api.AwaitRequest.
func condition(text string) (met func(*manager.Pod) (bool, error), err error) {
	kind, rest, _ := strings.Cut(text, "=")
	switch kind {
	case "condition":
		name, want, given := strings.Cut(rest, "=")
		if !given {
			want = "True"
		}
		if name == "" {
			break
		}
		return func(e *manager.Pod) (bool, error) { return conditionIs(e.Status(), name, want), nil }, nil
	case "jsonpath":
		return jsonpathIs(rest)
	}
	return nil, errclass.New(errdefs.ErrInvalidArgument,
		"invalid condition %q: use delete, condition=NAME[=STATUS] or jsonpath=TEMPLATE[=VALUE]", text)
}

// conditionIs ignores case, like kubectl.
func conditionIs(status corev1.PodStatus, name, want string) bool {
	for _, c := range status.Conditions {
		if strings.EqualFold(string(c.Type), name) {
			return strings.EqualFold(string(c.Status), want)
		}
	}
	return false
}

// jsonpathIs returns a condition that compares the result of a template, which ends with a brace, for the pod.
// Without a value, any result that is not empty meets it.
func jsonpathIs(text string) (func(*manager.Pod) (bool, error), error) {
	end := strings.LastIndexByte(text, '}') + 1
	template, value := text[:end], text[end:]
	want, compared := strings.CutPrefix(value, "=")
	if end == 0 || value != "" && !compared {
		return nil, errclass.New(errdefs.ErrInvalidArgument, "invalid condition jsonpath=%s: write jsonpath={.status.phase}=Running", text)
	}
	if _, err := jsonpath.Fill(template, json.RawMessage(`{}`)); err != nil {
		return nil, err
	}
	return func(e *manager.Pod) (bool, error) {
		raw, err := json.Marshal(shown(e))
		if err != nil {
			return false, fmt.Errorf("encode pod %s: %w", e.Key(), err)
		}
		got, err := jsonpath.Fill(template, raw)
		return err == nil && got != "" && (!compared || got == want), err
	}, nil
}

// End describes the pod's end.
func End(e *manager.Pod) api.Ended {
	given, status := e.Original(), e.Status()
	return api.Ended{
		Pod: e.Name(), Phase: string(status.Phase), ExitCode: state.ExitCode(given, status),
		Reason: state.Text(given, status), Message: state.EndMessage(given, status),
	}
}
