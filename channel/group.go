package channel

import "sync"

// group tracks goroutines. Once wait has started, run calls its function instead of starting a goroutine.
type group struct {
	mu      sync.Mutex
	waiting bool
	wg      sync.WaitGroup
}

func (g *group) run(f func()) {
	g.mu.Lock()
	if g.waiting {
		g.mu.Unlock()
		f()
		return
	}
	g.wg.Add(1)
	g.mu.Unlock()
	go func() {
		defer g.wg.Done()
		f()
	}()
}

func (g *group) wait() {
	g.mu.Lock()
	g.waiting = true
	g.mu.Unlock()
	g.wg.Wait()
}
