package agent

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// setNetwork replaces the pod's interfaces while it runs.
func (a *Agent) setNetwork(_ context.Context, r agentv1.SetNetwork) (none, error) {
	a.configuring.Lock()
	defer a.configuring.Unlock()
	a.mu.Lock()
	ready := a.configured != nil && !a.pod.Rehearsal
	a.mu.Unlock()
	if !ready {
		return none{}, fmt.Errorf("the VM has no pod yet: %w", errdefs.ErrInvalidArgument)
	}
	if err := a.cards.Update(r.Interfaces); err != nil {
		return none{}, fmt.Errorf("set up the network: %w", err)
	}
	if r.Resolver {
		if err := a.resolver.Listen(); err != nil {
			return none{}, fmt.Errorf("take DNS queries: %w", err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pod.Cards = a.cards.Further()
	return none{}, nil
}

// resolve sends DNS queries of the pod to the host, and its answers to the pod, until the stream ends.
func (a *Agent) resolve(_ context.Context, s *agentv1.Stream) error {
	if err := s.Reply(nil); err != nil {
		return err
	}
	conn := agentv1.NewChunkConn(s.Conn)
	defer conn.Close()
	a.resolver.Serve(conn)
	return nil
}

// listening waits until the ports that processes listen on differ from known, and returns them.
func (a *Agent) listening(ctx context.Context, known agentv1.Listening) (agentv1.Listening, error) {
	ports, err := a.ports.Wait(ctx, known.Ports)
	return agentv1.Listening{Ports: ports}, err
}
