package pod

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// Remembers tells whether a pod has something to tell that is not read back from
// the CRI: by its probes, or by who wants to be started anew for a resize.
func Remembers(pod *corev1.Pod) bool {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if probed(&list[i]) || slices.ContainsFunc(list[i].ResizePolicy, isAnew) {
				return true
			}
		}
	}
	return false
}

func probed(c *corev1.Container) bool {
	return c.StartupProbe != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil
}

func isAnew(policy corev1.ContainerResizePolicy) bool {
	return policy.RestartPolicy == corev1.RestartContainer
}

// Remembers is Remembers of the pod itself.
func (p *Pod) Remembers() bool { return Remembers(p.pod) }

// Verdicts are what the probes of the containers that run have found, and which
// are ended in order to be started anew, by their CRI ids: what Options.Last wants
// when the pod is taken over. They change with the status.
func (p *Pod) Verdicts() map[string]probe.Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]probe.Verdict)
	for _, list := range [][]corev1.ContainerStatus{p.status.InitContainerStatuses, p.status.ContainerStatuses} {
		for _, c := range list {
			if _, id, found := strings.Cut(c.ContainerID, "://"); found && c.State.Running != nil {
				out[id] = probe.Verdict{Started: c.Started != nil && *c.Started, Ready: c.Ready}
			}
		}
	}
	for id := range p.ending {
		verdict := out[id]
		verdict.Ending = true
		out[id] = verdict
	}
	return out
}
