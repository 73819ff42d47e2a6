package manager

import (
	"context"

	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// Free removes the sandboxes of a pod that has ended, with the disk that they hold, and leaves its record and its logs:
// its status is the one that it ended with, for the next manager as well. It does nothing to any other pod, and
// nothing to one whose end could not be written down: the next manager would run it again.
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
