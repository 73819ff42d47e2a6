package view

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/door/run/state"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/pod/manager"
)

func (s *Service) list(r *http.Request) (any, error) {
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

// chosen describes the selected pods, with facts of their VMs.
func (s *Service) chosen(ctx context.Context, which selection) []api.Pod {
	pods := []api.Pod{}
	for _, e := range s.Pods.All() {
		if !which.has(e.Original()) {
			continue
		}
		p := Summary(e)
		if id := e.Sandbox(); id != "" && !e.HasEnded() {
			if f, err := s.Engine.Facts(ctx, id); err == nil {
				p.Accel, p.Ports = f.Accel, portsOf(f.Ports)
				if f.State == "paused" && !e.Ending() {
					p.Status = "Paused"
				}
			}
		}
		pods = append(pods, p)
	}
	return pods
}

// Summary returns a line of the list of pods.
func Summary(e *manager.Pod) api.Pod {
	given, status := e.Original(), e.Status()
	n := state.Count(given, status)
	p := api.Pod{
		UID: string(e.UID()), Sandbox: e.Sandbox(), Name: e.Name(), Namespace: given.Namespace,
		Phase: string(status.Phase), Status: state.Text(given, status),
		Ready: n.Ready, Containers: n.Containers, Restarts: n.Restarts,
		IP: status.PodIP, Created: given.CreationTimestamp.Time, Labels: given.Labels,
	}
	switch {
	case e.Ending() && !e.HasEnded():
		p.Status = state.Terminating
	case e.Stopped() && state.Signalled(status):
		p.Status = state.Stopped
	}
	return p
}

// vmConditionType is the condition that describes a pod's VM. Conditions are the only part of a v1.PodStatus
// that may be extended.
const vmConditionType corev1.PodConditionType = "io.bulkhead/Machine"

// vmCondition is true while the pod has a VM. Its reason says how the VM was created, and its message
// describes it. inspect --sandbox has the same facts as separate fields.
func vmCondition(f *engine.Facts, began *metav1.Time) corev1.PodCondition {
	c := corev1.PodCondition{Type: vmConditionType, Status: corev1.ConditionTrue, Reason: "ColdBoot"}
	if began != nil {
		c.LastTransitionTime = *began
	}
	if f.Clone {
		c.Reason = "Clone"
	}
	if f.Forked {
		c.Reason = "Fork"
	}
	if f.State == "stopped" {
		c.Status = corev1.ConditionFalse
	}
	parts := []string{
		f.State, fmt.Sprintf("%d CPU, %d MiB", f.VCPUs, f.MemoryMiB), "accelerator " + f.Accel, "network " + noted(f.Network, f.NetNote),
	}
	if f.Template != "" {
		parts = append(parts, "template "+f.Template)
	}
	if f.ForkNote != "" {
		parts = append(parts, "not forked: "+f.ForkNote)
	}
	if f.VMPID != 0 {
		parts = append(parts, fmt.Sprintf("process %d", f.VMPID))
	}
	if f.Exit != "" {
		parts = append(parts, "ended: "+f.Exit)
	}
	c.Message = strings.Join(parts, "; ")
	return c
}

func noted(what, note string) string {
	if note == "" {
		return what
	}
	return what + " (" + note + ")"
}
