package manager

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// reasonDamaged is the reason in the status of a pod with an unreadable record.
const reasonDamaged = "Damaged"

// substitute returns a substitute for an unreadable record. The pod is listed as failed, with the cause, and can be
// removed with its VM. Its name comes from its sandbox; without one, it is the UID.
func (m *Manager) substitute(ctx context.Context, uid string, cause error) Record {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: metav1.NamespaceDefault, UID: types.UID(uid)}}
	p.Spec.Containers = []corev1.Container{{Name: "unknown"}}
	filter := &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": uid}}
	list, err := m.o.Runtime.ListPodSandbox(ctx, filter)
	if err == nil && len(list) > 0 {
		p.Name, p.Namespace = list[0].GetMetadata().GetName(), list[0].GetMetadata().GetNamespace()
	}
	return Record{Pod: p, Ended: &corev1.PodStatus{
		Phase: corev1.PodFailed, Reason: reasonDamaged,
		Message: fmt.Sprintf("its record is damaged, so it can only be removed: %v", cause),
	}}
}

// Damaged returns an errdefs.ErrConflict if the pod's record could not be read, else nil. A damaged pod can only be
// removed.
func (p *Pod) Damaged() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rec.Ended == nil || p.rec.Ended.Reason != reasonDamaged {
		return nil
	}
	return errclass.New(errdefs.ErrConflict, "pod %s: %w", p.Key(), errors.New(p.rec.Ended.Message))
}
