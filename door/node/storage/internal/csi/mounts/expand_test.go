package mounts

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestExpand checks that a volume grows at its mount or while it is mounted, if its claim waits for the node. The
// result is in the claim's status, and other claims do not change.
func TestExpand(t *testing.T) {
	t.Parallel()
	const pending, infeasible = corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInfeasible
	for _, tc := range []struct {
		name    string
		state   corev1.ClaimResourceStatus
		code    codes.Code
		running bool // the claim grows while the volume is mounted
		calls   int
		want    corev1.ClaimResourceStatus
		size    string
	}{
		{name: "no expansion", calls: 0, size: "1Gi"},
		{name: "not for the node", state: corev1.PersistentVolumeClaimControllerResizeInProgress, size: "1Gi",
			want: corev1.PersistentVolumeClaimControllerResizeInProgress},
		{name: "grows", state: pending, calls: 1, size: "2Gi"},
		{name: "grows while in use", state: pending, running: true, calls: 1, size: "2Gi"},
		{name: "not while in use", state: pending, running: true, code: codes.FailedPrecondition, calls: 1, size: "1Gi",
			want: corev1.PersistentVolumeClaimNodeResizeInProgress},
		{name: "never", state: pending, code: codes.OutOfRange, calls: 1, size: "1Gi", want: infeasible},
		{name: "not now", state: pending, code: codes.Internal, calls: 1, size: "1Gi",
			want: corev1.PersistentVolumeClaimNodeResizeInProgress},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ctx := testdeadline.Context(t, 5*time.Second)
			w := newWorld(t, storagev1.CSIDriverSpec{})
			w.facts.Expand = true
			w.driver.Set(func(_ context.Context, call string) error {
				if call == "expand" && tc.code != codes.OK {
					return status.Error(tc.code, "injected error")
				}
				return nil
			}, nil)
			q := persistent("u1", false)
			q.PV.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "claim"}
			q.PV.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: "c"}}
			claim.Spec.VolumeName = q.PV.Name
			claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
			claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
				{Type: corev1.PersistentVolumeClaimFileSystemResizePending}, {Type: "Theirs"},
			}
			grown := claim.DeepCopy()
			if tc.state != "" {
				grown.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: tc.state}
			}
			if tc.running {
				w.add(t, claim, q.PV)
				if _, err := w.Mount(ctx, q); err != nil {
					t.Fatal(err)
				}
				if _, err := w.client.CoreV1().PersistentVolumeClaims("ns").Update(ctx, grown, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				w.tend(ctx)
			} else {
				w.add(t, grown, q.PV)
				if _, err := w.Mount(ctx, q); err != nil {
					t.Errorf("mount: %v", err)
				}
			}
			calls := 0
			for _, r := range w.driver.Requests() {
				if e, is := r.(*csi.NodeExpandVolumeRequest); is {
					calls++
					if e.GetCapacityRange().GetRequiredBytes() != 2<<30 || !strings.HasSuffix(e.GetVolumePath(), "/mount") ||
						!strings.HasSuffix(e.GetStagingTargetPath(), "/globalmount") {
						t.Errorf("expansion request %v", e)
					}
				}
			}
			got, err := w.client.CoreV1().PersistentVolumeClaims("ns").Get(ctx, "claim", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			size := got.Status.Capacity[corev1.ResourceStorage]
			state := got.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
			conditions := map[string]int{"1Gi": 2, "2Gi": 1}[tc.size]
			if calls != tc.calls || state != tc.want || size.String() != tc.size || len(got.Status.Conditions) != conditions {
				t.Errorf("%d calls, status %+v", calls, got.Status)
			}
			if err := w.Unmount(ctx, "u1", "v"); err != nil {
				t.Error(err)
			}
			w.left()
		})
	}
}

// add adds a claim and its volume to the API server.
func (w *world) add(t *testing.T, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
	t.Helper()
	if err := w.client.Tracker().Add(claim); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Tracker().Add(pv); err != nil {
		t.Fatal(err)
	}
}
