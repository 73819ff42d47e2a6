// Package nodeinfo tells the API server which CSI drivers a node has: by its CSINode, and by labels and an annotation of
// its Node. It may do so with the stock role of a node, which reads no CSINode but the node's own and watches none.
package nodeinfo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/bulkhead-project/bulkhead/door/node/csi/driver"
)

const (
	// firstPause and lastPause bound the pauses of what fails.
	firstPause = 200 * time.Millisecond
	lastPause  = 30 * time.Second
	// lookEvery is how often the CSINode is looked at although nothing has changed: it goes with its Node.
	lookEvery = 5 * time.Minute
	// callTimeout bounds one round.
	callTimeout = 30 * time.Second
)

// Teller tells of the drivers.
type Teller struct {
	client kubernetes.Interface
	node   string
	log    *slog.Logger
	wake   chan struct{}

	mu      sync.Mutex
	drivers map[string]*entry
	gone    map[string]bool // those whose removal the API server was not told
}

// entry is one driver. told is closed when the API server was told of it, and refused holds why it cannot be.
type entry struct {
	facts   driver.Facts
	told    chan struct{}
	refused error
}

// New makes a Teller, whose owner calls Run once.
func New(client kubernetes.Interface, node string, log *slog.Logger) *Teller {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Teller{
		client: client, node: node, log: log, wake: make(chan struct{}, 1),
		drivers: map[string]*entry{}, gone: map[string]bool{},
	}
}

// Add tells of a driver, and returns when that was done. Where it cannot be done, or ctx ends before, the driver is not told
// of and the error says why.
func (t *Teller) Add(ctx context.Context, name string, facts driver.Facts) error {
	e := &entry{facts: facts, told: make(chan struct{})}
	t.mu.Lock()
	t.drivers[name] = e
	delete(t.gone, name)
	t.mu.Unlock()
	t.Look()
	var err error
	select {
	case <-e.told:
		err = e.refused
	case <-ctx.Done():
		err = fmt.Errorf("register driver %s in the CSINode: %w", name, context.Cause(ctx))
	}
	if err == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.drivers[name] == e {
		t.remove(name)
	}
	return err
}

// Remove tells that there is no such driver any more. It does not wait until that was done.
func (t *Teller) Remove(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(name)
}

// remove is called with mu held.
func (t *Teller) remove(name string) {
	delete(t.drivers, name)
	t.gone[name] = true
	t.Look()
}

// Look has what the API server has compared with what there is. It does not block.
func (t *Teller) Look() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends.
func (t *Teller) Run(ctx context.Context) {
	pause, first := firstPause, true
	for {
		wait := lookEvery
		if !first || t.due() {
			if err := t.round(ctx); err != nil {
				if ctx.Err() != nil {
					return
				}
				t.log.Warn("updating the CSINode failed, retrying", "error", err)
				wait, pause = pause, min(2*pause, lastPause)
			} else {
				pause = firstPause
			}
		}
		first = false
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-t.wake:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// due tells whether there is anything to tell.
func (t *Teller) due() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.drivers)+len(t.gone) > 0
}

// round tells of all drivers as they are now.
func (t *Teller) round(ctx context.Context) error {
	t.mu.Lock()
	all, gone := make(map[string]*entry, len(t.drivers)), make(map[string]bool, len(t.gone))
	for name, e := range t.drivers {
		all[name] = e
	}
	for name := range t.gone {
		gone[name] = true
	}
	t.mu.Unlock()
	if len(all)+len(gone) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	refused, err := t.tell(ctx, all, gone)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for name := range gone {
		if t.drivers[name] == nil {
			delete(t.gone, name)
		}
	}
	for name, e := range all {
		select {
		case <-e.told:
		default:
			e.refused = refused[name]
			close(e.told)
		}
	}
	return nil
}

// errCollision is of a driver whose topology contradicts a label of the node.
var errCollision = errors.New("detected topology value collision")
