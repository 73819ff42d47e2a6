package bounds

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

const (
	// watchBurst is how often the same may be watched at once, and watchRate how often a second from then on. A
	// reflector that is told that its version is too old asks again at once, for ever.
	watchBurst = 10
	watchRate  = 2
	// forgetAfter is after what time without a watch of the same all may be asked at once again.
	forgetAfter = watchBurst / watchRate * time.Second
)

// watches are those of late. Its methods may be called at once.
type watches struct {
	mu    sync.Mutex
	of    map[string]*watching // by what is watched
	swept time.Time
}

type watching struct {
	limit flowcontrol.RateLimiter
	last  time.Time
}

// wait returns when a watch may begin, or its request is given up.
func (w *watches) wait(r *http.Request) error {
	if err := w.get(r.URL.Path+"?"+r.URL.Query().Get("fieldSelector"), time.Now()).Wait(r.Context()); err != nil {
		return fmt.Errorf("watch %s again: %w", r.URL.Path, err)
	}
	return nil
}

// get is the limit of what is watched. What was not watched for a while is forgotten.
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
