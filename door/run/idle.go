package run

import (
	"net/http"
	"sync"
	"time"
)

// idle ends an engine that has had nothing to do for a while. Requests and
// running pods keep it.
type idle struct {
	mu    sync.Mutex
	busy  int
	after time.Duration
	timer *time.Timer
}

func newIdle(after time.Duration, end func()) *idle {
	return &idle{after: after, timer: time.AfterFunc(after, end)}
}

// enter and leave bracket what keeps the engine.
func (i *idle) enter() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.busy++
	i.timer.Stop()
}

func (i *idle) leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.busy--; i.busy == 0 {
		i.timer.Reset(i.after)
	}
}

func (i *idle) end() { i.timer.Stop() }

// hold is enter, and returns leave.
func (i *idle) hold() (release func()) {
	i.enter()
	return i.leave
}

// count lets every request keep the engine while it lasts.
func (i *idle) count(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.enter()
		defer i.leave()
		h.ServeHTTP(w, r)
	})
}
