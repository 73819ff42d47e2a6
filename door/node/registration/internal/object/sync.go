package object

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// sync creates the Node, or reports its changes.
func (k *Keeper) sync(ctx context.Context) error {
	status := k.o.Status(ctx)
	node := k.Node()
	if node == nil {
		got, err := k.o.Client.CoreV1().Nodes().Get(ctx, k.o.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			if got, err = k.create(ctx, status); err == nil {
				k.publish(got, &corev1.NodeStatus{}, &status, false)
			}
		}
		if err != nil {
			return err
		}
		node = got
	}
	k.clash(node, &status)
	if err := k.label(ctx, node); err != nil {
		return err
	}
	return errors.Join(k.report(ctx, node, status), k.passCIDRs(ctx, node))
}

// clash detects another host with the same node name: the status keeps being replaced.
func (k *Keeper) clash(node *corev1.Node, own *corev1.NodeStatus) {
	k.mu.Lock()
	if k.reported.IsZero() || node.Status.NodeInfo.BootID == own.NodeInfo.BootID {
		k.otherBoots = 0
	} else {
		k.otherBoots++
	}
	clash := k.otherBoots >= 2 && !k.clashed // the first may be an old answer
	k.clashed = k.clashed || clash
	k.mu.Unlock()
	if clash && k.o.Clash != nil {
		k.o.Clash(node)
	}
}

func (k *Keeper) create(ctx context.Context, status corev1.NodeStatus) (*corev1.Node, error) {
	now := metav1.Now()
	if k.o.InUse != nil { // volumes from before may be mounted
		status.VolumesInUse = k.o.InUse()
	}
	for i := range status.Conditions {
		status.Conditions[i].LastHeartbeatTime, status.Conditions[i].LastTransitionTime = now, now
	}
	return k.o.Client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: k.o.Name, Labels: maps.Clone(k.o.Labels), Annotations: maps.Clone(k.o.Annotations)},
		Spec:       corev1.NodeSpec{Taints: k.o.Taints},
		Status:     status,
	}, metav1.CreateOptions{})
}

// label adds missing or changed labels and annotations to an existing Node.
func (k *Keeper) label(ctx context.Context, node *corev1.Node) error {
	meta := map[string]any{}
	for field, pair := range map[string][2]map[string]string{
		"labels": {k.o.Labels, node.Labels}, "annotations": {k.o.Annotations, node.Annotations},
	} {
		missing := map[string]string{}
		for key, value := range pair[0] {
			if has, is := pair[1][key]; !is || has != value {
				missing[key] = value
			}
		}
		if len(missing) > 0 {
			meta[field] = missing
		}
	}
	if len(meta) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return err
	}
	_, err = k.o.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}

// report patches the status if it has changed or was not reported for a while.
func (k *Keeper) report(ctx context.Context, node *corev1.Node, status corev1.NodeStatus) error {
	now := metav1.Now()
	next := node.Status.DeepCopy()
	next.Capacity, next.Allocatable = resources(&node.Status, &status)
	next.Addresses, next.NodeInfo, next.DaemonEndpoints = status.Addresses, status.NodeInfo, status.DaemonEndpoints
	var must bool
	next.VolumesInUse, must = k.next(node)
	if status.Features != nil {
		next.Images, next.RuntimeHandlers, next.Features = status.Images, status.RuntimeHandlers, status.Features
	} else { // the runtime does not answer: keep its last report
		next.NodeInfo.ContainerRuntimeVersion = node.Status.NodeInfo.ContainerRuntimeVersion
	}
	for _, c := range status.Conditions {
		setCondition(next, c, now)
	}
	k.mu.Lock()
	due := time.Since(k.reported) >= reportEvery
	k.mu.Unlock()
	if !due && !must && withoutTimes(&node.Status) == withoutTimes(next) {
		return nil
	}
	base := node.Status
	if must { // make the base differ from the next list, so that the patch contains the list
		base.VolumesInUse = append(slices.Clone(next.VolumesInUse), "")
	}
	before, err := json.Marshal(corev1.Node{Status: base})
	if err != nil {
		return err
	}
	after, err := json.Marshal(corev1.Node{Status: *next})
	if err != nil {
		return err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Node{})
	if err != nil {
		return err
	}
	k.sends()
	got, err := k.o.Client.CoreV1().Nodes().PatchStatus(ctx, node.Name, patch)
	if err != nil {
		return err
	}
	k.answered(got)
	k.mu.Lock()
	first := k.reported.IsZero()
	k.reported = time.Now()
	k.mu.Unlock()
	k.publish(got, &node.Status, next, first)
	if must && k.o.Changed != nil {
		k.o.Changed()
	}
	return nil
}

// setCondition sets one of the node's own conditions.
func setCondition(status *corev1.NodeStatus, c corev1.NodeCondition, now metav1.Time) {
	c.LastHeartbeatTime, c.LastTransitionTime = now, now
	for i := range status.Conditions {
		if old := &status.Conditions[i]; old.Type == c.Type {
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			*old = c
			return
		}
	}
	status.Conditions = append(status.Conditions, c)
}

// withoutTimes returns a status without its heartbeat times, in a comparable form.
func withoutTimes(s *corev1.NodeStatus) string {
	out := s.DeepCopy()
	for i := range out.Conditions {
		out.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	text, _ := json.Marshal(out) // plain data, so no error
	return string(text)
}
