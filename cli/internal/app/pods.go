package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// together is how many pods a command ends, or starts, at once.
const together = 16

// EachPod runs one call for every pod named, several at once, and prints the names
// that succeeded in the order that they were given in; the errors of all are returned.
func (a *App) EachPod(refs []string, call func(ref string) error) error {
	results, free := make([]chan error, len(refs)), make(chan struct{}, together)
	for i, ref := range refs {
		results[i] = make(chan error, 1)
		go func() {
			free <- struct{}{}
			results[i] <- call(ref)
			<-free
		}()
	}
	var errs []error
	for i, ref := range refs {
		if err := <-results[i]; err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintln(a.Out, ref)
	}
	return errors.Join(errs...)
}

// Stop ends a pod. An error of api.ErrNotFound says that it is not there.
func (a *App) Stop(ctx context.Context, ref string, req api.StopRequest) error {
	return a.Client.Call(ctx, "POST", PodPath(ref, "stop"), nil, req, nil)
}

// ErrTimeout is matched by the error of an Await whose time is over.
var ErrTimeout = errors.New("timed out")

// Await waits until a pod meets a condition, see api.AwaitRequest. An error of
// api.ErrConflict says that it never will.
func (a *App) Await(ctx context.Context, ref, condition string) error {
	err := a.Client.Call(ctx, "POST", PodPath(ref, "await"), nil, api.AwaitRequest{For: condition}, nil)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w waiting for %s of pod %s (bulkhead events tells what happened)", ErrTimeout, condition, ref)
	}
	return err
}
