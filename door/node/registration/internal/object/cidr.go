package object

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// cidrTimeout bounds the call that passes the pod CIDRs to the runtime.
const cidrTimeout = 10 * time.Second

// passCIDRs passes the pod CIDRs to the runtime when the Node first has them and when they change, like a kubelet.
func (k *Keeper) passCIDRs(ctx context.Context, node *corev1.Node) error {
	cidrs := cidrsOf(node)
	if k.o.PodCIDR == nil || cidrs == "" || cidrs == k.cidrs {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cidrTimeout)
	defer cancel()
	if err := k.o.PodCIDR(ctx, cidrs); err != nil {
		return fmt.Errorf("pass the pod CIDRs to the runtime: %w", err)
	}
	k.cidrs = cidrs
	return nil
}

func cidrsOf(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	if len(node.Spec.PodCIDRs) == 0 {
		return node.Spec.PodCIDR
	}
	return strings.Join(node.Spec.PodCIDRs, ",")
}
