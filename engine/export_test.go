package engine

import (
	"context"
	"testing"
	"time"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
)

// Member waits for the pool to be full and returns its member's id.
func (e *Engine) Member(t *testing.T) string {
	t.Helper()
	e.pool.refill(0) // as a pod's end does
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		e.pool.mu.Lock()
		id := ""
		if len(e.pool.members) > 0 {
			id = e.pool.members[0].record.ID
		}
		e.pool.mu.Unlock()
		if id != "" {
			return id
		}
	}
	t.Fatal("the pool stays empty")
	return ""
}

// Rehearsed waits until the pool's member has rehearsed.
func (e *Engine) Rehearsed(ctx context.Context) error {
	e.pool.mu.Lock()
	c := e.pool.members[0].conn
	e.pool.mu.Unlock()
	_, err := c.Ext.Status(ctx, &shimv1.StatusRequest{Booted: true})
	return err
}

// WantAnother has the pool hold members of another kind.
func (e *Engine) WantAnother() { e.pool.want(kind{memory: 1}) }

// TakeDead has the shim of the pool's member be dead, and takes it for a pod.
func (e *Engine) TakeDead() (taken bool) {
	dead := make(chan struct{})
	close(dead)
	e.pool.members[0].conn.Done = dead
	return e.pool.take(context.Background(), e.pool.kind) != nil
}

// Working counts what is being made, the pool's members among them.
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
