package run

import (
	"fmt"
	"strings"

	"github.com/bulkhead-project/bulkhead/engine"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// machineConditionType is the condition that tells about a pod's machine, in
// the only part of a v1.PodStatus that is open to others.
const machineConditionType corev1.PodConditionType = "io.bulkhead/Machine"

// machineCondition is true while the pod has a machine. Its reason says where
// that came from, its message what it is; inspect --sandbox has the same facts
// one by one.
func machineCondition(f *engine.Facts, began *metav1.Time) corev1.PodCondition {
	c := corev1.PodCondition{Type: machineConditionType, Status: corev1.ConditionTrue, Reason: "ColdBoot"}
	if began != nil {
		c.LastTransitionTime = *began
	}
	if f.Clone {
		c.Reason = "Clone"
	}
	if f.State == "stopped" {
		c.Status = corev1.ConditionFalse
	}
	parts := []string{f.State, fmt.Sprintf("%d CPU, %d MiB", f.VCPUs, f.MemoryMiB), "accelerator " + f.Accel, "network " + noted(f.Network, f.NetNote)}
	if f.Template != "" {
		parts = append(parts, "template "+f.Template)
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
