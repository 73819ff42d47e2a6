// Package measuretest records an engine's measurements for tests.
package measuretest

import (
	"maps"
	"slices"
	"sync"

	"github.com/bulkhead-project/bulkhead/engine/measure"
)

// Tally is an Observer that records all calls. Its zero value is ready to use.
type Tally struct {
	mu     sync.Mutex
	starts []measure.Start
	stops  [][]measure.Phase
	counts map[measure.Event]int
}

// Started implements measure.Observer.
func (t *Tally) Started(s measure.Start) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.starts = append(t.starts, s)
}

// Stopped implements measure.Observer.
func (t *Tally) Stopped(parts []measure.Phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stops = append(t.stops, parts)
}

// Count implements measure.Observer.
func (t *Tally) Count(e measure.Event, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[measure.Event]int{}
	}
	if t.counts[e] += n; t.counts[e] == 0 {
		delete(t.counts, e)
	}
}

// Starts returns the reported starts in order.
func (t *Tally) Starts() []measure.Start {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.starts)
}

// Stops returns the parts of the reported stops in order.
func (t *Tally) Stops() [][]measure.Phase {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.stops)
}

// Counts returns the number of each event.
func (t *Tally) Counts() map[measure.Event]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}
