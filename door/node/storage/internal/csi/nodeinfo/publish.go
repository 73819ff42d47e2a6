package nodeinfo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/csi/driver"
)

// nodeID is the annotation of a Node with its IDs for the drivers.
const nodeID = "csi.volume.kubernetes.io/nodeid"

// publish updates the Node and its CSINode. refused are the drivers that it cannot publish.
func (p *Publisher) publish(ctx context.Context, all map[string]*entry, gone map[string]bool) (refused map[string]error, err error) {
	node, err := p.client.CoreV1().Nodes().Get(ctx, p.node, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get the node: %w", err)
	}
	facts, refused := map[string]driver.Facts{}, map[string]error{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name].facts
		labelled, err := p.label(ctx, node, f.Topology)
		switch {
		case err == nil:
			node, facts[name] = labelled, f
		case errors.Is(err, errCollision), apierrors.IsForbidden(err), apierrors.IsInvalid(err):
			refused[name], gone[name] = err, true
		default:
			return nil, err
		}
	}
	if err := p.annotate(ctx, node, facts, gone); err != nil {
		return nil, err
	}
	return refused, p.publishCSINode(ctx, node, facts, gone)
}

// label adds the labels of a topology to the Node. A label with another value is an error.
func (p *Publisher) label(ctx context.Context, node *corev1.Node, topology map[string]string) (*corev1.Node, error) {
	missing := map[string]string{}
	for key, value := range topology {
		switch has, is := node.Labels[key]; {
		case !is:
			missing[key] = value
		case has != value:
			return nil, fmt.Errorf("%w: driver reported %q:%q but existing label is %q:%q", errCollision, key, value, key, has)
		}
	}
	if len(missing) == 0 {
		return node, nil
	}
	return p.patch(ctx, node.Name, map[string]any{"labels": missing})
}

// annotate updates the annotation with the node's IDs. A node has only one process, so no other process writes the
// annotation.
func (p *Publisher) annotate(ctx context.Context, node *corev1.Node, facts map[string]driver.Facts, gone map[string]bool) error {
	before := node.Annotations[nodeID]
	ids := map[string]string{}
	if before != "" && json.Unmarshal([]byte(before), &ids) != nil {
		ids = map[string]string{} // unreadable, start again
	}
	for name := range gone {
		delete(ids, name)
	}
	for name, f := range facts {
		ids[name] = f.NodeID
	}
	var next any // nil removes the annotation
	if len(ids) > 0 {
		text, err := json.Marshal(ids)
		if err != nil {
			return err
		}
		next = string(text)
	}
	if next == nil && before == "" || next == before {
		return nil
	}
	_, err := p.patch(ctx, node.Name, map[string]any{"annotations": map[string]any{nodeID: next}})
	return err
}

func (p *Publisher) patch(ctx context.Context, node string, meta map[string]any) (*corev1.Node, error) {
	patch, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return nil, err
	}
	got, err := p.client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("patch the node: %w", err)
	}
	return got, nil
}

// publishCSINode creates or updates the CSINode.
func (p *Publisher) publishCSINode(ctx context.Context, node *corev1.Node, facts map[string]driver.Facts, gone map[string]bool) error {
	client := p.client.StorageV1().CSINodes()
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	now, err := client.Get(ctx, p.node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if len(facts) == 0 {
			return nil
		}
		now, err = client.Create(ctx, &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: p.node, OwnerReferences: owner},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("get or create the CSINode: %w", err)
	}
	// The API does not allow changes to a driver entry, so it must be removed and added again.
	next := now.DeepCopy()
	next.OwnerReferences = owner
	next.Spec.Drivers = slices.DeleteFunc(next.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
		f, have := facts[d.Name]
		return gone[d.Name] || have && !equality.Semantic.DeepEqual(d, entryOf(d.Name, f))
	})
	if now, err = p.update(ctx, now, next); err != nil {
		return err
	}
	next = now.DeepCopy()
	for _, name := range slices.Sorted(maps.Keys(facts)) {
		if !slices.ContainsFunc(next.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == name }) {
			next.Spec.Drivers = append(next.Spec.Drivers, entryOf(name, facts[name]))
		}
	}
	_, err = p.update(ctx, now, next)
	return err
}

// update writes the CSINode if it has changed. A conflict is an error, and the next round starts from the beginning.
func (p *Publisher) update(ctx context.Context, now, next *storagev1.CSINode) (*storagev1.CSINode, error) {
	if equality.Semantic.DeepEqual(now, next) {
		return now, nil
	}
	got, err := p.client.StorageV1().CSINodes().Update(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("update the CSINode: %w", err)
	}
	return got, nil
}

// entryOf returns a driver's entry for a CSINode.
func entryOf(name string, f driver.Facts) storagev1.CSINodeDriver {
	d := storagev1.CSINodeDriver{Name: name, NodeID: f.NodeID, TopologyKeys: slices.Sorted(maps.Keys(f.Topology))}
	if f.MaxVolumes > 0 {
		d.Allocatable = &storagev1.VolumeNodeResources{Count: &f.MaxVolumes}
	}
	return d
}
