package life

import (
	"net/http"
	"sync"
	"time"
)

// Idle stops an engine that has been idle for a while. Requests and running pods keep the engine alive. Idle is
// safe for concurrent use.
type Idle struct {
	mu    sync.Mutex
	busy  int
	ended bool
	after time.Duration
	timer *time.Timer
	end   func()
}

// NewIdle returns an Idle that calls end once, after the engine was idle for the duration after. The time starts
// when release is called, because an engine that adopts pods is not idle.
func NewIdle(after time.Duration, end func()) (i *Idle, release func()) {
	i = &Idle{after: after, end: end, busy: 1}
	i.timer = time.AfterFunc(after, i.expire)
	i.timer.Stop()
	return i, i.release
}

// expire ends the engine, unless a request or pod has come since the timer fired.
func (i *Idle) expire() {
	i.mu.Lock()
	i.ended = i.ended || i.busy == 0
	ended := i.ended
	i.mu.Unlock()
	if ended {
		i.end()
	}
}

// acquire and leave bracket what keeps the engine alive. acquire reports whether the engine stays.
func (i *Idle) acquire() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.busy++
	i.timer.Stop()
	return !i.ended
}

func (i *Idle) release() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.busy--; i.busy == 0 {
		i.timer.Reset(i.after)
	}
}

// Stop stops the timer, so that end is not called.
func (i *Idle) Stop() { i.timer.Stop() }

// Hold keeps the engine alive until release is called.
func (i *Idle) Hold() (release func()) {
	i.acquire()
	return i.release
}

// Count keeps the engine alive during each request. If the idle engine has begun to stop, a new request gets no
// answer, and its client asks the next engine.
func (i *Idle) Count(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stays := i.acquire()
		defer i.release()
		if !stays {
			panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to drop a connection without an answer
		}
		h.ServeHTTP(w, r)
	})
}
