// Package watch subscribes to a runtime's events about pods.
package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/retry"
)

// retryDelay is the pause before an ended subscription is renewed.
const retryDelay = time.Second

var errEnded = errors.New("the runtime ended the subscription")

// Watch is one subscription to a runtime's events, shared by all pods. With one for each pod, the runtime would send
// every event to every pod. The subscription lasts while it has listeners. Watch is safe for concurrent use.
type Watch struct {
	runtime internalapi.RuntimeService
	log     *slog.Logger

	mu   sync.Mutex
	open *subscription // nil without listeners
}

// New returns the watch of a runtime.
func New(runtime internalapi.RuntimeService, log *slog.Logger) *Watch {
	return &Watch{runtime: runtime, log: log}
}

// listener receives the notes about one pod, through a channel with room for one.
type listener struct {
	uid   types.UID
	notes chan struct{}
}

func (l *listener) note() {
	select {
	case l.notes <- struct{}{}:
	default:
	}
}

// Subscribe returns a channel with room for one that receives a note after events of a pod. The reader then reads back
// the pod's state, so it cannot miss a change. A note also comes immediately, and after each renewal of the
// subscription. The caller must call leave, which returns when all work for the reader has ended. If the first
// subscription fails, Subscribe returns an error.
func (w *Watch) Subscribe(ctx context.Context, uid types.UID) (notes <-chan struct{}, leave func(), err error) {
	l := &listener{uid, make(chan struct{}, 1)}
	s := w.join(l)
	select {
	case <-s.known:
		err = s.refused
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		w.unsubscribe(s, l)
		return nil, nil, err
	}
	l.note()
	return l.notes, sync.OnceFunc(func() { w.unsubscribe(s, l) }), nil
}

// join adds a listener to the open subscription, or to a new one.
func (w *Watch) join(l *listener) *subscription {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		ctx, stop := context.WithCancel(context.Background()) // unsubscribe ends it
		s := &subscription{stop: stop, known: make(chan struct{}), done: make(chan struct{}), listeners: map[types.UID][]*listener{}}
		w.open = s
		go w.follow(ctx, s)
	}
	w.open.mu.Lock()
	defer w.open.mu.Unlock()
	w.open.listeners[l.uid] = append(w.open.listeners[l.uid], l)
	return w.open
}

// unsubscribe removes a listener. The last one waits for the subscription's end.
func (w *Watch) unsubscribe(s *subscription, l *listener) {
	if !w.out(s, l) {
		return
	}
	s.stop()
	<-s.done
}

func (w *Watch) out(s *subscription, l *listener) (last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(s.listeners[l.uid], func(other *listener) bool { return other == l })
	if s.listeners[l.uid] = left; len(left) == 0 {
		delete(s.listeners, l.uid)
	}
	last = len(s.listeners) == 0
	if last && w.open == s {
		w.open = nil
	}
	return last
}

// follow listens until ctx ends, or the first subscription fails.
func (w *Watch) follow(ctx context.Context, s *subscription) {
	defer close(s.done)
	established := sync.OnceFunc(func() { close(s.known) })
	for ctx.Err() == nil {
		err := w.listen(ctx, s, established)
		select {
		case <-s.known:
		default:
			w.mu.Lock()
			if w.open == s {
				w.open = nil // later listeners make a new one
			}
			w.mu.Unlock()
			if s.refused = errEnded; err != nil {
				s.refused = fmt.Errorf("%w: %w", errEnded, err)
			}
			close(s.known)
			return
		}
		if ctx.Err() == nil {
			w.log.Warn("container events ended", "error", err)
		}
		retry.Sleep(ctx, retryDelay, nil)
	}
}

// listen forwards events to the listeners until the runtime ends the subscription, or ctx ends.
func (w *Watch) listen(ctx context.Context, s *subscription, established func()) error {
	events := make(chan *runtimeapi.ContainerEventResponse, 16)
	ended := make(chan error, 1)
	go func() {
		ended <- w.runtime.GetContainerEvents(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) {
			established()
			s.noteAll()
		})
	}()
	for {
		select {
		case event := <-events:
			if of := event.GetPodSandboxStatus().GetMetadata(); of != nil {
				s.note(types.UID(of.GetUid()))
			} else {
				s.noteAll()
			}
		case err := <-ended:
			return err
		}
	}
}

// subscription is a subscription that listeners share.
type subscription struct {
	stop    context.CancelFunc
	done    chan struct{} // closed when it has ended
	known   chan struct{} // closed when it is established, or refused is set
	refused error

	mu        sync.Mutex
	listeners map[types.UID][]*listener // each list has a listener
}

// note notifies the listeners for a pod.
func (s *subscription) note(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners[uid] {
		l.note()
	}
}

// noteAll notifies all listeners, because the event may concern any pod.
func (s *subscription) noteAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, all := range s.listeners {
		for _, l := range all {
			l.note()
		}
	}
}
