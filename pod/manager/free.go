package manager

import (
	"context"

	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// Free removes the sandboxes of a pod that has ended, with their disk space. The record, with the final status, and the
// logs stay. Free does nothing to a pod that has not ended. It fails if the pod's end cannot be saved, because the next
// manager would then run the pod again.
func (p *Pod) Free(ctx context.Context) error {
	done, gone, err := p.claim(ctx)
	if err != nil {
		return err
	}
	defer done()
	if gone || p.Damaged() != nil {
		return nil
	}
	p.mu.Lock()
	over := p.rec.Ended != nil && podstatus.Ended(p.rec.Ended) && !p.freed
	if over && !p.kept {
		if err = p.save(); err == nil {
			p.kept = true
		}
	}
	p.mu.Unlock()
	if err != nil || !over {
		return err
	}
	if err := p.supervised().Free(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	p.freed = true
	p.mu.Unlock()
	return nil
}
