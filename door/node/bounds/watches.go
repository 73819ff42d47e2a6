package bounds

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

const (
	// watchBurst is how many watches of the same objects may start at once. watchRate is how many may start per second
	// after that. A reflector with a version that is too old would otherwise retry without a pause.
	watchBurst = 10
	watchRate  = 2
	// forgetAfter is the time without a watch after which the full burst is available again.
	forgetAfter = watchBurst / watchRate * time.Second
)

// watches limits repeated watches. It is safe for concurrent use.
type watches struct {
	mu    sync.Mutex
	of    map[string]*watching // by path and field selector
	swept time.Time
}

type watching struct {
	limit flowcontrol.RateLimiter
	last  time.Time
}

// wait returns when a watch may start, or an error when its request is cancelled.
func (w *watches) wait(r *http.Request) error {
	if err := w.get(r.URL.Path+"?"+r.URL.Query().Get("fieldSelector"), time.Now()).Wait(r.Context()); err != nil {
		return fmt.Errorf("watch %s again: %w", r.URL.Path, err)
	}
	return nil
}

// get returns the limit for a key. It drops limits that were not used for a while.
func (w *watches) get(what string, now time.Time) flowcontrol.RateLimiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of == nil {
		w.of = map[string]*watching{}
	}
	if now.Sub(w.swept) > forgetAfter {
		w.swept = now
		for key, one := range w.of {
			if now.Sub(one.last) > forgetAfter {
				delete(w.of, key)
			}
		}
	}
	one := w.of[what]
	if one == nil {
		one = &watching{limit: flowcontrol.NewTokenBucketRateLimiter(watchRate, watchBurst)}
		w.of[what] = one
	}
	one.last = now
	return one.limit
}
