package pod

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// Probed tells whether a pod has a probe, and with it something to tell that is
// not read back from the CRI.
func Probed(pod *corev1.Pod) bool {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if probed(&list[i]) {
				return true
			}
		}
	}
	return false
}

func probed(c *corev1.Container) bool {
	return c.StartupProbe != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil
}

// Probed is Probed of the pod itself.
func (p *Pod) Probed() bool { return Probed(p.pod) }

// Verdicts are what the probes of the containers that run have found, by their
// CRI ids: what Options.Last wants when the pod is taken over.
func (p *Pod) Verdicts() map[string]probe.Verdict { return VerdictsOf(p.Status()) }

// VerdictsOf are those that a status tells.
func VerdictsOf(status corev1.PodStatus) map[string]probe.Verdict {
	out := make(map[string]probe.Verdict)
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for _, c := range list {
			if _, id, found := strings.Cut(c.ContainerID, "://"); found && c.State.Running != nil {
				out[id] = probe.Verdict{Started: c.Started != nil && *c.Started, Ready: c.Ready}
			}
		}
	}
	return out
}
