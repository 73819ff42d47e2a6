package app

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// PodPath returns the engine's path for a pod, or for one of its subresources.
func (a *App) PodPath(ref, what string) string {
	if name := strings.TrimPrefix(ref, "pod/"); a.Namespace != "" && !strings.Contains(name, "/") {
		ref = a.Namespace + "/" + name
	}
	path := "/v1/pods/" + url.PathEscape(ref)
	if what != "" {
		path += "/" + what
	}
	return path
}

// together is the number of pods that a command changes concurrently.
const together = 16

// EachPod calls call for every reference, several at once. It prints the touched names in the order of the
// references, and returns all errors.
func (a *App) EachPod(refs []string, call func(ref string) (touched string, err error)) error {
	type result struct {
		touched string
		err     error
	}
	results, free := make([]chan result, len(refs)), make(chan struct{}, together)
	for i, ref := range refs {
		results[i] = make(chan result, 1)
		go func() {
			free <- struct{}{}
			touched, err := call(ref)
			results[i] <- result{touched, err}
			<-free
		}()
	}
	var errs []error
	for i := range refs {
		r := <-results[i]
		if r.err != nil {
			errs = append(errs, r.err)
			continue
		}
		fmt.Fprintln(a.Out, r.touched)
	}
	return errors.Join(errs...)
}

// Change makes a call that changes a pod. It returns the pod's full name, also if the path has only an id or a
// prefix.
func (a *App) Change(ctx context.Context, method, path string, query url.Values, req any) (touched string, err error) {
	var r api.Result
	err = a.Client.Call(ctx, method, path, query, req, &r)
	return strings.TrimPrefix(r.Pod, "default/"), err
}

// Stop ends a pod and returns its name. The error matches errdefs.ErrNotFound if the pod does not exist.
func (a *App) Stop(ctx context.Context, ref string, req api.StopRequest) (string, error) {
	return a.Change(ctx, "POST", a.PodPath(ref, "stop"), nil, req)
}

// ErrTimeout matches the error of an Await that timed out.
var ErrTimeout = errors.New("timed out")

// Await waits until a pod meets a condition, see api.AwaitRequest, and returns the pod's name. The error matches
// errdefs.ErrConflict if the pod can never meet it.
func (a *App) Await(ctx context.Context, ref, condition string) (string, error) {
	touched, err := a.Change(ctx, "POST", a.PodPath(ref, "await"), nil, api.AwaitRequest{For: condition})
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "", a.late(ref, condition)
	}
	return touched, err
}

// AwaitRunning waits until the pod with this uid and name runs or has succeeded. failed describes a failure of the
// pod.
func (a *App) AwaitRunning(ctx context.Context, uid, name string) (failed *api.Ended, err error) {
	var r api.Result
	err = a.Client.Call(ctx, "POST", a.PodPath(uid, "await"), nil, api.AwaitRequest{For: "running"}, &r)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, fmt.Errorf("%w waiting for pod %s to be ready (bulkhead describe %[2]s shows why; --wait-timeout sets the limit)",
			ErrTimeout, name)
	}
	return r.Failed, err
}

// late returns the error for a pod that did not meet a condition in time. It includes the pod's current status.
func (a *App) late(ref, condition string) error {
	ctx, cancel := context.WithTimeout(context.Background(), stateTimeout)
	defer cancel()
	var pods []api.Pod
	name, state := ref, ""
	if err := a.Client.Call(ctx, "GET", "/v1/pods", url.Values{"all": {"false"}}, nil, &pods); err == nil {
		for _, p := range pods {
			if p.UID == ref || p.Name == ref || p.Namespace+"/"+p.Name == ref {
				name, state = strings.TrimPrefix(p.Namespace+"/"+p.Name, "default/"), ": it is "+p.Status
			}
		}
	}
	return fmt.Errorf("%w waiting for %s of pod %s%s (bulkhead events %s shows why)", ErrTimeout, condition, name, state, name)
}

// stateTimeout bounds the request for the status that late reports.
const stateTimeout = 5 * time.Second
