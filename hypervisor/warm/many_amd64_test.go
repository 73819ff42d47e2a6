package warm

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// TestLoaded forks a hundred times while every processor is busy. No fork may hang or leave anything in the parent.
func TestLoaded(t *testing.T) {
	t.Parallel()
	p := plain.start(t)
	var done atomic.Bool
	defer done.Store(true)
	for range runtime.NumCPU() {
		go func() {
			for n := 0; !done.Load(); n++ {
				continue
			}
		}()
	}
	p.times(t, 100)
}

// TestNothingLeaks checks that a parent has the same threads and descriptors after two hundred forks.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	p := plain.start(t)
	descriptors, threads := links(t, p.pid), names(t, p.pid)
	p.times(t, 200)
	if got := links(t, p.pid); len(got) != len(descriptors) {
		t.Errorf("it has the descriptors %v, had %v", got, descriptors)
	}
	if got := names(t, p.pid); !slices.Equal(got, threads) {
		t.Errorf("it has the threads %v, had %v", got, threads)
	}
}

// times forks n times; each child works.
func (p *parent) times(t *testing.T, n int) {
	t.Helper()
	var freeze, fork, ready []time.Duration
	tries := 0
	for range n {
		t.Run("", func(t *testing.T) {
			once := *p
			once.t = t
			c, a := once.child(Request{Name: p.sibling()})
			c.workers(t, p.ctx)
			freeze, fork, ready = append(freeze, a.Freeze), append(fork, a.Fork), append(ready, a.Ready)
			tries += a.Tries
		})
	}
	p.alone(t)
	p.workers(t, p.ctx)
	for _, all := range [][]time.Duration{freeze, fork, ready} {
		slices.Sort(all)
	}
	if len(ready) == n {
		t.Logf("%d forks, %d tries; medians: freeze %v, fork %v, ready %v; longest: %v, %v, %v",
			n, tries, freeze[n/2], fork[n/2], ready[n/2], freeze[n-1], fork[n-1], ready[n-1])
	}
}
