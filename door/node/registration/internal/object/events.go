package object

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// The kubelet's reasons for events about a Node.
const (
	reasonStarting = "Starting"
	reasonRebooted = "Rebooted"
)

// conditionReasons maps each condition to the reason for False or Unknown and the reason for True.
var conditionReasons = map[corev1.NodeConditionType][2]string{
	corev1.NodeReady:          {"NodeNotReady", "NodeReady"},
	corev1.NodeMemoryPressure: {"NodeHasSufficientMemory", "NodeHasInsufficientMemory"},
	corev1.NodeDiskPressure:   {"NodeHasNoDiskPressure", "NodeHasDiskPressure"},
	corev1.NodePIDPressure:    {"NodeHasSufficientPID", "NodeHasInsufficientPID"},
}

// publish sends events for the changes of a reported Node status. first means that this process reported for the first
// time.
func (k *Keeper) publish(node *corev1.Node, before, after *corev1.NodeStatus, first bool) {
	if k.o.Events == nil {
		return
	}
	if first {
		k.o.Events.Event(node, corev1.EventTypeNormal, reasonStarting, "Starting bulkhead node.")
	}
	if was, is := before.NodeInfo.BootID, after.NodeInfo.BootID; first && was != "" && was != is {
		k.o.Events.Event(node, corev1.EventTypeWarning, reasonRebooted, fmt.Sprintf("Node %s has been rebooted, boot id: %s", node.Name, is))
	}
	for _, c := range after.Conditions {
		reasons, own := conditionReasons[c.Type]
		if !own || statusOf(before, c.Type) == c.Status {
			continue
		}
		reason := reasons[0]
		if c.Status == corev1.ConditionTrue {
			reason = reasons[1]
		}
		k.o.Events.Event(node, corev1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", node.Name, reason))
	}
}

// statusOf returns the status of a condition, or "" if the condition is not set.
func statusOf(s *corev1.NodeStatus, kind corev1.NodeConditionType) corev1.ConditionStatus {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return s.Conditions[i].Status
		}
	}
	return ""
}
