package mounts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/csi/driver"
)

// expand makes the driver expand a published volume to the size of its PersistentVolume, if the claim's status leaves
// this to the node. It reports the result in the claim's status. If the driver cannot expand a volume in use, the claim
// waits until the volume is published again.
func (a *attempt) expand(ctx context.Context) error {
	if a.r.Claim == nil || a.r.ReadOnly || !a.driver.Facts.Expand {
		return nil
	}
	client := a.m.o.Client.CoreV1()
	claim, err := client.PersistentVolumeClaims(a.r.Claim.Namespace).Get(ctx, a.r.Claim.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get the volume's claim: %w", err)
	}
	switch claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] {
	case corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress:
	default:
		return nil
	}
	pv, err := client.PersistentVolumes().Get(ctx, a.r.Spec, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("get the volume: %w", err)
	case pv.Spec.CSI == nil || claim.Spec.VolumeName != pv.Name || pv.Spec.CSI.VolumeHandle != a.r.Handle:
		return nil // another claim
	}
	if claim, err = a.m.claimStatus(ctx, claim, corev1.PersistentVolumeClaimNodeResizeInProgress, nil); err != nil {
		return err
	}
	size := pv.Spec.Capacity[corev1.ResourceStorage]
	err = a.grow(ctx, pv, size.Value())
	var failed *driver.Error
	switch {
	case err == nil:
		_, err = a.m.claimStatus(ctx, claim, "", pv.Spec.Capacity)
		return err
	case !errors.As(err, &failed):
	case failed.Code == codes.FailedPrecondition:
		a.m.o.Logger.Warn("a CSI volume cannot be expanded while it is in use", "volume", a.r.Spec, "error", err)
		return nil
	case failed.Code == codes.InvalidArgument || failed.Code == codes.OutOfRange || failed.Code == codes.NotFound:
		_, reported := a.m.claimStatus(ctx, claim, corev1.PersistentVolumeClaimNodeResizeInfeasible, nil)
		err = errors.Join(err, reported)
	}
	return fmt.Errorf("MountVolume.NodeExpandVolume failed for volume %q: %w", a.r.Spec, err)
}

// grow calls the driver.
func (a *attempt) grow(ctx context.Context, pv *corev1.PersistentVolume, size int64) error {
	secrets, err := a.m.secrets(ctx, pv.Spec.CSI.NodeExpandSecretRef)
	if err != nil {
		return err
	}
	request := &csi.NodeExpandVolumeRequest{
		VolumeId: a.r.Handle, VolumePath: a.r.targetPath(), CapacityRange: &csi.CapacityRange{RequiredBytes: size},
		VolumeCapability: a.capability(), Secrets: secrets,
	}
	if a.driver.Facts.Stage {
		request.StagingTargetPath = a.r.stagePath()
	}
	_, err = a.driver.Node.NodeExpandVolume(a.m.ctx, request)
	return err
}

// claimStatus patches the progress of an expansion into a claim's status. A capacity means that it is finished.
func (m *Mounter) claimStatus(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, state corev1.ClaimResourceStatus, capacity corev1.ResourceList,
) (*corev1.PersistentVolumeClaim, error) {
	status := map[string]any{"allocatedResourceStatuses": map[string]any{"storage": state}}
	if state == "" {
		status["allocatedResourceStatuses"] = map[string]any{"storage": nil}
	}
	if capacity != nil {
		status["capacity"] = corev1.ResourceList{corev1.ResourceStorage: capacity[corev1.ResourceStorage]}
		status["conditions"] = slices.DeleteFunc(slices.Clone(claim.Status.Conditions), func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type == corev1.PersistentVolumeClaimResizing || c.Type == corev1.PersistentVolumeClaimFileSystemResizePending
		})
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim.UID, "resourceVersion": claim.ResourceVersion}, "status": status,
	})
	if err != nil {
		return nil, err
	}
	got, err := m.o.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return nil, fmt.Errorf("update the status of claim %s/%s for the expansion of its volume: %w", claim.Namespace, claim.Name, err)
	}
	return got, nil
}
