package engine

import (
	"testing"
)

// Working counts what is being made.
func (e *Engine) Working() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.working)
}

// SetClosed has the engine be closed, or open again.
func (e *Engine) SetClosed(closed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = closed
}

// SetMissing has the kernel lack walls, as an error says.
func (e *Engine) SetMissing(err error) { e.missing = err }

// PodUsers are the users that a pod has on the host.
func (e *Engine) PodUsers(id string) ([]int, error) { return e.podUsers(id) }

// ShimDone is closed when the connection to the pod's shim is, nil without one.
func (e *Engine) ShimDone(t *testing.T, id string) <-chan struct{} {
	t.Helper()
	p, err := e.find(id)
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.shim()
	if err != nil {
		return nil
	}
	return c.Done
}
