package agent

import (
	"context"
	"fmt"
	"reflect"

	"github.com/bulkhead-project/bulkhead/agent/internal/interfaces"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// setNetwork configures the VM's first interface for the pod. A later call can replace only the configuration of a rehearsal.
func (a *Agent) setNetwork(n *agentv1.Network) error {
	if n == nil || reflect.DeepEqual(n, a.network) {
		return nil
	}
	set := n
	if a.network != nil {
		if !a.pod.Rehearsal {
			return fmt.Errorf("the interface is already configured differently: %w", agentv1.ErrExists)
		}
		same := *a.network
		if same.MAC = n.MAC; reflect.DeepEqual(&same, n) {
			set = &agentv1.Network{MAC: n.MAC} // the rest is the same
		} else if err := interfaces.Clear(&a.card, a.network); err != nil {
			return err
		}
	}
	if err := interfaces.Set(&a.card, set); err != nil {
		return err
	}
	a.network = n
	return nil
}

// listening waits until the ports that processes listen on differ from known, and returns them.
func (a *Agent) listening(ctx context.Context, known agentv1.Listening) (agentv1.Listening, error) {
	ports, err := a.ports.Wait(ctx, known.Ports)
	return agentv1.Listening{Ports: ports}, err
}
