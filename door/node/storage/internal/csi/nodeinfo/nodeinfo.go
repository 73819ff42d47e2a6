// Package nodeinfo publishes the CSI drivers of a node in its CSINode, and in labels and an annotation of its Node. It
// needs only the stock role of a node, which can get its own CSINode but can watch none.
package nodeinfo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/csi/driver"
	"github.com/bulkhead-project/bulkhead/internal/retry"
)

const (
	// checkEvery is the interval between checks of an unchanged CSINode, which is deleted together with its Node.
	checkEvery = 5 * time.Minute
	// callTimeout limits one round.
	callTimeout = 30 * time.Second
)

// pauses are the pauses after failures.
var pauses = retry.Pauses{First: 200 * time.Millisecond, Last: 30 * time.Second}

// Publisher publishes the drivers.
type Publisher struct {
	client kubernetes.Interface
	node   string
	log    *slog.Logger
	wake   chan struct{}

	mu      sync.Mutex
	drivers map[string]*entry
	gone    map[string]bool // removed drivers that the API server may still have
}

// entry is one driver. published is closed once the driver has been published or refused. refused is the reason.
type entry struct {
	facts     driver.Facts
	published chan struct{}
	refused   error
}

// New returns a Publisher. The caller calls Run once.
func New(client kubernetes.Interface, node string, log *slog.Logger) *Publisher {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	return &Publisher{
		client: client, node: node, log: log, wake: make(chan struct{}, 1),
		drivers: map[string]*entry{}, gone: map[string]bool{},
	}
}

// Add publishes a driver and waits for the result. If it fails or ctx ends first, the driver is removed again, and the
// error says why.
func (p *Publisher) Add(ctx context.Context, name string, facts driver.Facts) error {
	e := &entry{facts: facts, published: make(chan struct{})}
	p.mu.Lock()
	p.drivers[name] = e
	delete(p.gone, name)
	p.mu.Unlock()
	p.Wake()
	var err error
	select {
	case <-e.published:
		err = e.refused
	case <-ctx.Done():
		err = fmt.Errorf("register driver %s in the CSINode: %w", name, context.Cause(ctx))
	}
	if err == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drivers[name] == e {
		p.remove(name)
	}
	return err
}

// Remove removes a driver. It does not wait for the API server.
func (p *Publisher) Remove(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(name)
}

// remove removes a driver. The caller holds mu.
func (p *Publisher) remove(name string) {
	delete(p.drivers, name)
	p.gone[name] = true
	p.Wake()
}

// Wake starts a round soon. It does not block.
func (p *Publisher) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run publishes drivers until ctx ends.
func (p *Publisher) Run(ctx context.Context) {
	pauses.Loop(ctx, checkEvery, p.wake, func() error { return p.round(ctx) }, func(err error) {
		p.log.Warn("updating the CSINode failed, retrying", "error", err)
	})
}

// round publishes all drivers as they are now.
func (p *Publisher) round(ctx context.Context) error {
	p.mu.Lock()
	all, gone := maps.Clone(p.drivers), maps.Clone(p.gone)
	p.mu.Unlock()
	if len(all)+len(gone) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	refused, err := p.publish(ctx, all, gone)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range gone {
		if p.drivers[name] == nil {
			delete(p.gone, name)
		}
	}
	for name, e := range all {
		select {
		case <-e.published:
		default:
			e.refused = refused[name]
			close(e.published)
		}
	}
	return nil
}

// errCollision means that a driver's topology contradicts a label of the node.
var errCollision = errors.New("detected topology value collision")
