package run

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// reasonDamaged is the reason in the status of a pod whose record cannot be
// read.
const reasonDamaged = "Damaged"

// salvage is what can be known of a pod without its record: it is listed as
// failed, with the cause, and can be removed with all that runs of it. Its name
// is its sandbox's, or its UID for want of one.
func (s *server) salvage(ctx context.Context, uid string, cause error) record {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: metav1.NamespaceDefault, UID: types.UID(uid)}}
	p.Spec.Containers = []corev1.Container{{Name: "unknown"}}
	list, err := s.engine.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": uid}})
	if err == nil && len(list) > 0 {
		p.Name, p.Namespace = list[0].GetMetadata().GetName(), list[0].GetMetadata().GetNamespace()
	}
	return record{Pod: p, Ended: &corev1.PodStatus{
		Phase: corev1.PodFailed, Reason: reasonDamaged,
		Message: fmt.Sprintf("its record is damaged: remove it (bulkhead rm -f %s): %v", p.Name, cause),
	}}
}

// damaged is the cause if the pod's record could not be read.
func (r record) damaged() (cause string, yes bool) {
	if r.Ended == nil || r.Ended.Reason != reasonDamaged {
		return "", false
	}
	return r.Ended.Message, true
}
