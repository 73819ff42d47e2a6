package engine

import (
	"testing"

	"github.com/bulkhead-project/bulkhead/shim/uids"
)

// Working returns the number of pods that are being created.
func (e *Engine) Working() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.working)
}

// SetClosed closes the engine, or opens it again.
func (e *Engine) SetClosed(closed bool) {
	e.closing.Lock()
	defer e.closing.Unlock()
	e.closed = closed
}

// SetMissing sets the walls that the kernel lacks.
func (e *Engine) SetMissing(err error) { e.missing = err }

// PodUsers returns the users that a pod has on the host.
func (e *Engine) PodUsers(id string) ([]int, error) { return uids.Held(e.o.Users, id) }

// ShimDone returns the channel that is closed with the connection to the pod's shim, or nil without one.
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
