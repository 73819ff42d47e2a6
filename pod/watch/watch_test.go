package watch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// source is a runtime whose subscriptions end when they are told to.
type source struct {
	internalapi.RuntimeService
	refuse error
	began  atomic.Int32
	tell   chan string   // UIDs; empty is an event without a pod
	end    chan struct{} // ends the subscription
}

func (s *source) GetContainerEvents(
	ctx context.Context, events chan *runtimeapi.ContainerEventResponse,
	established func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	s.began.Add(1)
	if s.refuse != nil {
		return s.refuse
	}
	established(nil)
	for {
		select {
		case uid := <-s.tell:
			event := &runtimeapi.ContainerEventResponse{}
			if uid != "" {
				event.PodSandboxStatus = &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}}
			}
			events <- event
		case <-s.end:
			return errors.New("ended")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{tell: make(chan string), end: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		notes, err := (&Watch{Runtime: s, UID: "u", Logger: slog.New(slog.DiscardHandler)}).Subscribe(ctx, &work)
		if err != nil {
			t.Fatal(err)
		}
		noted := func(want bool, when string) {
			t.Helper()
			synctest.Wait()
			select {
			case <-notes:
				if !want {
					t.Errorf("%s: told", when)
				}
			default:
				if want {
					t.Errorf("%s: not told", when)
				}
			}
		}
		noted(true, "at the beginning") // what was before is read back
		noted(false, "without an event")
		s.tell <- "other"
		noted(false, "of another pod")
		s.tell <- ""
		noted(true, "of no pod")
		s.tell <- "u"
		s.tell <- "u"
		noted(true, "of the pod")
		noted(false, "twice at once")
		s.end <- struct{}{}
		time.Sleep(retryDelay - time.Millisecond)
		if noted(false, "before it is renewed"); s.began.Load() != 1 {
			t.Errorf("subscribed %d times", s.began.Load())
		}
		time.Sleep(time.Millisecond)
		if noted(true, "renewed"); s.began.Load() != 2 {
			t.Errorf("subscribed %d times", s.began.Load())
		}
		s.tell <- "u"
		noted(true, "after it was renewed")
		cancel()
		work.Wait()
	})
}

func TestNoSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{refuse: errors.New("refused")}
		var work sync.WaitGroup
		_, err := (&Watch{Runtime: s, UID: "u", Logger: slog.New(slog.DiscardHandler)}).Subscribe(t.Context(), &work)
		if !errors.Is(err, s.refuse) {
			t.Errorf("%v", err)
		}
		work.Wait() // and nobody tries again
		if s.began.Load() != 1 {
			t.Errorf("subscribed %d times", s.began.Load())
		}
	})
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		Pause(t.Context(), time.Minute)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("paused for %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		Pause(ctx, time.Minute)
		if took := time.Since(began); took != time.Minute+time.Second {
			t.Errorf("paused for %v in all", took)
		}
	})
}
