package life

import (
	"net/http"
	"sync"
	"time"
)

// Idle ends an engine that has had nothing to do for a while. Requests and
// running pods keep it. Its methods may be called at once.
type Idle struct {
	mu    sync.Mutex
	busy  int
	ended bool
	after time.Duration
	timer *time.Timer
	end   func()
}

// NewIdle calls end once, when nothing has kept the engine for so long. The time does not run before release is called:
// an engine that takes over what an earlier one left is not idle.
func NewIdle(after time.Duration, end func()) (i *Idle, release func()) {
	i = &Idle{after: after, end: end, busy: 1}
	i.timer = time.AfterFunc(after, i.expire)
	i.timer.Stop()
	return i, i.leave
}

// expire ends the engine, unless something has come since the timer went off.
func (i *Idle) expire() {
	i.mu.Lock()
	i.ended = i.ended || i.busy == 0
	ended := i.ended
	i.mu.Unlock()
	if ended {
		i.end()
	}
}

// enter and leave bracket what keeps the engine. enter reports whether the engine stays.
func (i *Idle) enter() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.busy++
	i.timer.Stop()
	return !i.ended
}

func (i *Idle) leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.busy--; i.busy == 0 {
		i.timer.Reset(i.after)
	}
}

// Stop keeps end from being called.
func (i *Idle) Stop() { i.timer.Stop() }

// Hold keeps the engine until release is called.
func (i *Idle) Hold() (release func()) {
	i.enter()
	return i.leave
}

// Count lets every request keep the engine while it lasts. A request that comes when the engine has begun to end for
// idleness gets no answer: its client asks the next engine.
func (i *Idle) Count(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stays := i.enter()
		defer i.leave()
		if !stays {
			panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to drop a connection without an answer
		}
		h.ServeHTTP(w, r)
	})
}
