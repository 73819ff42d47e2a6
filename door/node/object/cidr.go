package object

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// rangeTimeout bounds how long the runtime has to take the pods' addresses.
const rangeTimeout = 10 * time.Second

// ranges tells the runtime of the pods' addresses, as a kubelet does, when the Node gets any and when they are other ones.
func (k *Keeper) ranges(ctx context.Context, node *corev1.Node) error {
	cidrs := rangesOf(node)
	if k.o.PodCIDR == nil || cidrs == "" || cidrs == k.cidrs {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, rangeTimeout)
	defer cancel()
	if err := k.o.PodCIDR(ctx, cidrs); err != nil {
		return fmt.Errorf("tell the runtime of the pods' addresses: %w", err)
	}
	k.cidrs = cidrs
	return nil
}

func rangesOf(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	if len(node.Spec.PodCIDRs) == 0 {
		return node.Spec.PodCIDR
	}
	return strings.Join(node.Spec.PodCIDRs, ",")
}
