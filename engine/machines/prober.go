package machines

import (
	"context"
	"sync"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/probe"
)

// undecided is how long pods that want any accelerator are emulated without a new probe when one could not tell.
const undecided = 5 * time.Minute

// prober keeps a host on which probes cannot tell from probing for each pod.
type prober struct {
	probe.Prober
	mu      sync.Mutex // held while one probes
	unknown probe.Verdict
}

func (p *prober) resolve(ctx context.Context, wish hypervisor.Accel) (hypervisor.Accel, probe.Verdict, error) {
	if wish == hypervisor.TCG {
		return p.Resolve(ctx, wish)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if wish == hypervisor.Auto && !p.unknown.Probed.IsZero() && time.Since(p.unknown.Probed) < undecided {
		return hypervisor.TCG, p.unknown, nil
	}
	accel, v, err := p.Resolve(ctx, wish)
	p.unknown = probe.Verdict{}
	if v.Outcome == probe.Unknown {
		p.unknown = v
	}
	return accel, v, err
}
