// Package watch subscribes to what a runtime tells of one pod.
package watch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// retryDelay is how soon a subscription that has ended is renewed.
const retryDelay = time.Second

// Watch is a subscription to the events of a pod's containers.
type Watch struct {
	Runtime internalapi.RuntimeService
	UID     types.UID
	Logger  *slog.Logger
}

// Subscribe returns a channel with room for one that tells that something has
// happened; what it is the reader reads back, so that nothing can be missed. The
// subscription is renewed when it ends, until ctx does; work waits for that. A
// subscription that cannot be had at first is an error.
func (w *Watch) Subscribe(ctx context.Context, work *sync.WaitGroup) (<-chan struct{}, error) {
	notes := make(chan struct{}, 1)
	note := func() {
		select {
		case notes <- struct{}{}:
		default:
		}
	}
	first := make(chan error, 1)
	established := func(runtimeapi.RuntimeService_GetContainerEventsClient) {
		select {
		case first <- nil:
		default:
		}
		note()
	}
	work.Go(func() {
		for ctx.Err() == nil {
			err := w.listen(ctx, established, note)
			select {
			case first <- errors.Join(errors.New("the runtime ended the subscription"), err):
				return
			default:
			}
			if ctx.Err() == nil {
				w.Logger.Warn("container events ended", "error", err)
			}
			Pause(ctx, retryDelay)
		}
	})
	select {
	case err := <-first:
		if err == nil {
			// Full from now on: an end is a reason to subscribe anew.
			first <- nil
		}
		return notes, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// listen forwards the events of this pod until the subscription ends.
func (w *Watch) listen(ctx context.Context, established func(runtimeapi.RuntimeService_GetContainerEventsClient), note func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan *runtimeapi.ContainerEventResponse, 16)
	ended := make(chan error, 1)
	go func() { ended <- w.Runtime.GetContainerEvents(ctx, events, established) }()
	for {
		select {
		case event := <-events:
			metadata := event.GetPodSandboxStatus().GetMetadata()
			if metadata == nil || metadata.GetUid() == string(w.UID) {
				note()
			}
		case err := <-ended:
			return err
		}
	}
}

// Pause waits for d, or less when ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
