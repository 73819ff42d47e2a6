package view

import (
	"testing"

	"github.com/bulkhead-project/bulkhead/engine"

	corev1 "k8s.io/api/core/v1"
)

func TestVMCondition(t *testing.T) {
	for _, tc := range []struct {
		facts           engine.Facts
		status          corev1.ConditionStatus
		reason, message string
	}{
		{
			engine.Facts{
				State: "running", VCPUs: 2, MemoryMiB: 512, Accel: "tcg", AccelNote: "no /dev/kvm", Network: "user",
				Clone: true, Template: "ab", VMPID: 7,
			},
			corev1.ConditionTrue, "Clone", "running; 2 CPU, 512 MiB; accelerator tcg; network user; template ab; process 7",
		},
		{
			engine.Facts{State: "stopped", VCPUs: 1, MemoryMiB: 256, Accel: "kvm", Network: "none", Exit: "killed"},
			corev1.ConditionFalse, "ColdBoot", "stopped; 1 CPU, 256 MiB; accelerator kvm; network none; ended: killed",
		},
	} {
		c := vmCondition(&tc.facts, nil)
		if c.Status != tc.status || c.Reason != tc.reason || c.Message != tc.message {
			t.Errorf("%+v", c)
		}
	}
}
