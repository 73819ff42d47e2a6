package events

import (
	"context"
	"errors"
	"time"

	"github.com/containerd/containerd/api/types"
)

// deliver sends e until containerd has it, or has refused it several times. It returns false if ctx ended first.
func (p *Publisher) deliver(ctx context.Context, e *types.Envelope) bool {
	refused := 0
	for try := 0; ; try++ {
		attempt, cancel := context.WithTimeout(ctx, patience)
		err := p.to.send(attempt, e)
		cancel()
		if err == nil {
			return true
		}
		if try == 0 {
			p.log.Warn("publish an event; trying again", "topic", e.Topic, "error", err)
		}
		if errors.Is(err, errRefused) {
			if refused++; refused == refusals {
				p.log.Error("drop an event that containerd refuses", "topic", e.Topic, "error", err)
				p.mu.Lock()
				p.lost++
				p.mu.Unlock()
				return true
			}
		}
		select {
		case <-time.After(pauses[min(try, len(pauses)-1)]):
		case <-ctx.Done():
			return false
		}
	}
}
