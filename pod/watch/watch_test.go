package watch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// source is a runtime with subscriptions that the test ends.
type source struct {
	internalapi.RuntimeService
	refuse error
	silent bool // it is never established
	began  atomic.Int32
	open   atomic.Int32
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
	s.open.Add(1)
	defer s.open.Add(-1)
	if !s.silent {
		established(nil)
	}
	for {
		select {
		case uid := <-s.tell:
			event := &runtimeapi.ContainerEventResponse{}
			if uid != "" {
				event.PodSandboxStatus = &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}}
			}
			select {
			case events <- event:
			case <-ctx.Done():
			}
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
		w := New(s, slog.New(slog.DiscardHandler))
		notes, leave, err := w.Subscribe(t.Context(), "u")
		if err != nil {
			t.Fatal(err)
		}
		noted := func(want bool, when string) {
			t.Helper()
			synctest.Wait()
			select {
			case <-notes:
				if !want {
					t.Errorf("%s: notified", when)
				}
			default:
				if want {
					t.Errorf("%s: not notified", when)
				}
			}
		}
		noted(true, "at the beginning") // the reader reads back earlier changes
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
		leave()
		leave()
		if s.open.Load() != 0 {
			t.Error("the subscription goes on")
		}
	})
}

// TestShared: pods share one subscription, which lasts until the last of them leaves.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{tell: make(chan string), end: make(chan struct{})}
		w := New(s, slog.New(slog.DiscardHandler))
		type reader struct {
			uid   types.UID
			notes <-chan struct{}
			leave func()
		}
		join := func(uid types.UID) *reader {
			notes, leave, err := w.Subscribe(t.Context(), uid)
			if err != nil {
				t.Fatal(err)
			}
			<-notes
			synctest.Wait()
			select {
			case <-notes: // it was established meanwhile
			default:
			}
			return &reader{uid, notes, leave}
		}
		a, b, again := join("a"), join("b"), join("a")
		told := func(what string, want ...*reader) {
			t.Helper()
			s.tell <- what
			synctest.Wait()
			for _, r := range []*reader{a, b, again} {
				got := len(r.notes) == 1
				if got != slices.Contains(want, r) {
					t.Errorf("event %q: reader of %s notified: got %t, want %t", what, r.uid, got, !got)
				}
				if got {
					<-r.notes
				}
			}
		}
		told("a", a, again)
		told("b", b)
		told("c")
		told("", a, b, again)
		a.leave()
		told("a", again)
		again.leave()
		told("a")
		told("b", b)
		if s.began.Load() != 1 || s.open.Load() != 1 {
			t.Errorf("%d subscriptions, of which %d last", s.began.Load(), s.open.Load())
		}
		b.leave()
		if s.open.Load() != 0 {
			t.Error("the subscription goes on")
		}
		a = join("a")
		if s.began.Load() != 2 {
			t.Errorf("subscribed %d times after all had left", s.began.Load())
		}
		a.leave()
	})
}

func TestNoSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{refuse: errors.New("refused")}
		w := New(s, slog.New(slog.DiscardHandler))
		for i := range 2 {
			if _, _, err := w.Subscribe(t.Context(), "u"); !errors.Is(err, s.refuse) {
				t.Errorf("%v", err)
			}
			synctest.Wait() // there is no retry
			if int(s.began.Load()) != i+1 {
				t.Errorf("subscribed %d times", s.began.Load())
			}
		}
	})
}

// TestLate: Subscribe returns when its context ends, even if the runtime does not answer.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{silent: true}
		w := New(s, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := w.Subscribe(ctx, "u"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if s.open.Load() != 0 {
			t.Error("the subscription goes on")
		}
	})
}
