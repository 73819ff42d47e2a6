package vms

import (
	"context"
	"sync"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/probe"
)

// prober runs one probe at a time. All pods that start meanwhile share its result.
type prober struct {
	probe.Prober
	mu sync.Mutex
}

func (p *prober) resolve(ctx context.Context, wish hypervisor.Accel) (hypervisor.Accel, probe.Verdict, error) {
	if wish == hypervisor.TCG {
		return p.Resolve(ctx, wish)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Resolve(ctx, wish)
}
