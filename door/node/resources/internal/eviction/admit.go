package eviction

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// Admit returns why a node under pressure does not accept a pod. An empty reason means that it does. Under memory
// pressure alone, pods with a memory request and pods that tolerate the taint are accepted. Critical pods are always
// accepted.
func (m *Manager) Admit(pod *corev1.Pod) (reason, message string) {
	under := m.conditions()
	if len(under) == 0 || Critical(pod) {
		return "", ""
	}
	if len(under) == 1 && under[0] == corev1.NodeMemoryPressure {
		taint := &corev1.Taint{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule}
		if podspec.QOS(pod) != corev1.PodQOSBestEffort ||
			schedulinghelper.TolerationsTolerateTaint(klog.NewKlogr(), pod.Spec.Tolerations, taint, true) {
			return "", ""
		}
	}
	return "Evicted", fmt.Sprintf("The node had condition: %v. ", under)
}
