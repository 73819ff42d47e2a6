package node

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/node/claims"
	"github.com/bulkhead-project/bulkhead/volume"
)

// openClaims makes the keeper of the pods' claims, before any pod is taken over. A node without an API server has one as
// well, for pods of before.
func (n *node) openClaims() {
	n.claims = claims.New(claims.Options{
		Client: n.client, Node: n.registered, Places: n.runtime.Backend().Places, Logger: n.o.Logger,
	})
}

// registered is the Node as the API server has it, nil before it is known.
func (n *node) registered() *corev1.Node {
	if n.keeper == nil {
		return nil
	}
	return n.keeper.Node()
}

// claimsOf are the claims of one pod.
func (n *node) claimsOf(p *corev1.Pod, dir string) volume.Claims { return n.claims.Of(p, dir) }
