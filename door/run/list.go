package run

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

func (s *server) list(r *http.Request) (any, error) {
	which, err := parseSelection(r.URL.Query())
	if err != nil {
		return nil, err
	}
	pods := s.chosen(r.Context(), which)
	if r.URL.Query().Get("all") != "true" {
		return pods, nil
	}
	for i := range pods {
		pods[i].Instance = client.Instance
	}
	foreign, err := s.foreign()
	foreign = slices.DeleteFunc(foreign, func(p api.Pod) bool { return which.workload != "" || !which.lists(p.Namespace, p.Labels) })
	return append(pods, foreign...), err
}

// chosen tells of the pods of a selection, with what their VMs have.
func (s *server) chosen(ctx context.Context, which selection) []api.Pod {
	pods := []api.Pod{}
	for _, e := range s.all() {
		if !which.has(e.Given()) {
			continue
		}
		p := summary(e)
		if id := e.Sandbox(); id != "" && !e.HasEnded() {
			if f, err := s.engine.Facts(ctx, id); err == nil {
				p.Accel = f.Accel
				for _, port := range f.Ports {
					p.Ports = append(p.Ports, fmt.Sprintf("%s:%d->%d", port.HostIP, port.HostPort, port.PodPort))
				}
				if f.State == "paused" {
					p.Status = "Paused"
				}
			}
		}
		pods = append(pods, p)
	}
	return pods
}

func summary(e *entry) api.Pod {
	status := e.Status()
	p := api.Pod{
		UID: string(e.UID()), Sandbox: e.Sandbox(), Name: e.Name(), Namespace: e.Given().Namespace,
		Phase: string(status.Phase), Status: statusText(e.Given(), status), Containers: len(e.Given().Spec.Containers),
		IP: status.PodIP, Created: e.Given().CreationTimestamp.Time, Labels: e.Given().Labels,
	}
	for _, c := range status.ContainerStatuses {
		p.Restarts += int(c.RestartCount)
		if c.Ready {
			p.Ready++
		}
	}
	for i, c := range status.InitContainerStatuses {
		if !isSidecar(e.Given(), i) {
			continue
		}
		p.Containers++
		p.Restarts += int(c.RestartCount)
		if c.Ready {
			p.Ready++
		}
	}
	return p
}

// isSidecar tells what the pod's initial container at i is.
func isSidecar(p *corev1.Pod, i int) bool {
	if i >= len(p.Spec.InitContainers) {
		return false
	}
	policy := p.Spec.InitContainers[i].RestartPolicy
	return policy != nil && *policy == corev1.ContainerRestartPolicyAlways
}

// statusText is kubectl's STATUS column: the phase, unless a container's state
// says more.
func statusText(p *corev1.Pod, status corev1.PodStatus) string {
	text := string(status.Phase)
	if status.Reason != "" {
		text = status.Reason
	}
	if status.Reason == pod.ReasonDeadline {
		return text // rather than how its containers took it
	}
	if initial := initText(p, status); initial != "" && !initialised(status) {
		return initial
	}
	for _, c := range status.ContainerStatuses {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason == pod.ReasonCreating && status.Phase == corev1.PodFailed:
			// It was ended before it had begun.
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			return c.State.Waiting.Reason
		case c.State.Terminated != nil && status.Phase != corev1.PodRunning:
			if text = c.State.Terminated.Reason; c.State.Terminated.ExitCode != 0 {
				return text
			}
		}
	}
	return text
}

// initText says how far the start has come, empty when it is done.
func initText(p *corev1.Pod, status corev1.PodStatus) string {
	for i, c := range status.InitContainerStatuses {
		end, waits := c.State.Terminated, c.State.Waiting
		switch {
		case end != nil && end.ExitCode == 0, isSidecar(p, i) && c.Started != nil && *c.Started:
			continue
		case end != nil:
			return "Init:" + end.Reason
		case waits != nil && waits.Reason != "" && waits.Reason != "PodInitializing":
			return "Init:" + waits.Reason
		}
		return fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
	}
	return ""
}

func initialised(status corev1.PodStatus) bool {
	for _, c := range status.Conditions {
		if c.Type == corev1.PodInitialized {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// exitCode is the pod's as a command's, and 1 for one that has failed and no
// container of which tells why.
func exitCode(p *corev1.Pod, status corev1.PodStatus) int {
	code, _ := podstatus.ExitCode(&p.Spec, &status)
	if code == 0 && status.Phase == corev1.PodFailed {
		return 1
	}
	return code
}

// ownStatuses are those of the containers whose ends are the pod's, in their
// order.
func ownStatuses(p *corev1.Pod, status corev1.PodStatus) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i, c := range status.InitContainerStatuses {
		if !isSidecar(p, i) {
			out = append(out, c)
		}
	}
	return append(out, status.ContainerStatuses...)
}

func containerNames(p *corev1.Pod) []string {
	var names []string
	for _, c := range p.Spec.Containers {
		names = append(names, c.Name)
	}
	return names
}
