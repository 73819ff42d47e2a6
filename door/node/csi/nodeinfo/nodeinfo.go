// Package nodeinfo publishes the CSI drivers of a node in its CSINode, and in labels and an annotation of its Node. It
// needs only the stock role of a node, which can get its own CSINode but can watch none.
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
	// firstPause and lastPause bound the pauses after failures.
	firstPause = 200 * time.Millisecond
	lastPause  = 30 * time.Second
	// lookEvery is the interval between checks of an unchanged CSINode, which is deleted together with its Node.
	lookEvery = 5 * time.Minute
	// callTimeout limits one round.
	callTimeout = 30 * time.Second
)

// Teller publishes the drivers.
type Teller struct {
	client kubernetes.Interface
	node   string
	log    *slog.Logger
	wake   chan struct{}

	mu      sync.Mutex
	drivers map[string]*entry
	gone    map[string]bool // removed drivers that the API server may still have
}

// entry is one driver. told is closed once the driver has been published or refused. refused is the reason.
type entry struct {
	facts   driver.Facts
	told    chan struct{}
	refused error
}

// New returns a Teller. The caller calls Run once.
func New(client kubernetes.Interface, node string, log *slog.Logger) *Teller {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Teller{
		client: client, node: node, log: log, wake: make(chan struct{}, 1),
		drivers: map[string]*entry{}, gone: map[string]bool{},
	}
}

// Add publishes a driver and waits for the result. If it fails or ctx ends first, the driver is removed again, and the
// error says why.
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

// Remove removes a driver. It does not wait for the API server.
func (t *Teller) Remove(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(name)
}

// remove removes a driver. The caller holds mu.
func (t *Teller) remove(name string) {
	delete(t.drivers, name)
	t.gone[name] = true
	t.Look()
}

// Look starts a round soon. It does not block.
func (t *Teller) Look() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Run publishes drivers until ctx ends.
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

// due reports whether there are drivers to publish or to remove.
func (t *Teller) due() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.drivers)+len(t.gone) > 0
}

// round publishes all drivers as they are now.
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

// errCollision means that a driver's topology contradicts a label of the node.
var errCollision = errors.New("detected topology value collision")
