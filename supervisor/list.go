package supervisor

import (
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/supervisor/api"
	"github.com/bulkhead-project/bulkhead/supervisor/client"
)

func (s *Supervisor) list(r *http.Request) (any, error) {
	pods := []api.Pod{}
	for _, e := range s.pods.all() {
		p := summary(e)
		if id := e.pod().Sandbox(); id != "" && e.status().Phase == corev1.PodRunning {
			if f, err := s.engine.PodFacts(r.Context(), id); err == nil {
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
	if r.URL.Query().Get("all") != "true" {
		return pods, nil
	}
	for i := range pods {
		pods[i].Instance = client.Instance
	}
	foreign, err := s.foreign()
	return append(pods, foreign...), err
}

func summary(e *entry) api.Pod {
	status := e.status()
	p := api.Pod{
		UID: string(e.rec.Pod.UID), Sandbox: e.pod().Sandbox(), Name: e.rec.Pod.Name, Namespace: e.rec.Pod.Namespace,
		Phase: string(status.Phase), Status: statusText(status), Containers: len(e.rec.Pod.Spec.Containers),
		IP: status.PodIP, Created: e.rec.Pod.CreationTimestamp.Time, Labels: e.rec.Pod.Labels,
	}
	for _, c := range status.ContainerStatuses {
		p.Restarts += int(c.RestartCount)
		if c.Ready {
			p.Ready++
		}
	}
	return p
}

// statusText is kubectl's STATUS column: the phase, unless a container's state
// says more.
func statusText(status corev1.PodStatus) string {
	text := string(status.Phase)
	if status.Reason != "" {
		text = status.Reason
	}
	for _, c := range status.ContainerStatuses {
		switch {
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

// exitCode is the pod's as a command's: its first failed container's.
func exitCode(status corev1.PodStatus) int {
	for _, c := range status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			return int(t.ExitCode)
		}
	}
	if status.Phase == corev1.PodFailed {
		return 1
	}
	return 0
}

func containerNames(p *corev1.Pod) []string {
	var names []string
	for _, c := range p.Spec.Containers {
		names = append(names, c.Name)
	}
	return names
}
