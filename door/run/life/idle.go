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
	after time.Duration
	timer *time.Timer
}

// NewIdle calls end when nothing has kept the engine for so long, from now on.
func NewIdle(after time.Duration, end func()) *Idle {
	return &Idle{after: after, timer: time.AfterFunc(after, end)}
}

// enter and leave bracket what keeps the engine.
func (i *Idle) enter() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.busy++
	i.timer.Stop()
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

// Count lets every request keep the engine while it lasts.
func (i *Idle) Count(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.enter()
		defer i.leave()
		h.ServeHTTP(w, r)
	})
}
