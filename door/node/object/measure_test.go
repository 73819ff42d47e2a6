package object

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bulkhead-project/bulkhead/door/node/machine"
	"github.com/bulkhead-project/bulkhead/internal/testcri"
)

// TestAllocatable: what is reserved and what is withheld are both taken from the capacity, of which nothing is left below zero.
func TestAllocatable(t *testing.T) {
	t.Parallel()
	m := &Measurer{
		Facts: machine.Facts{CPUs: 2, MemoryBytes: 4 << 30}, Runtime: testcri.New(0), MaxPods: 110, DataDir: t.TempDir(),
		Reserved: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi"), "example.org/other": resource.MustParse("1")},
		Withheld: func(capacity corev1.ResourceList) corev1.ResourceList {
			if memory := capacity[corev1.ResourceMemory]; memory.Value() != 4<<30 {
				t.Errorf("asked about %s", &memory)
			}
			return corev1.ResourceList{
				corev1.ResourceMemory: resource.MustParse("100Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("1Ei"),
			}
		},
	}
	s := m.Status(t.Context())
	for name, want := range map[corev1.ResourceName]string{
		corev1.ResourceCPU: "2", corev1.ResourceMemory: "2972Mi", corev1.ResourceEphemeralStorage: "0", corev1.ResourcePods: "110",
	} {
		if got := s.Allocatable[name]; got.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("%s: %s, want %s", name, &got, want)
		}
	}
	if has := s.Capacity[corev1.ResourceMemory]; has.Value() != 4<<30 || len(s.Allocatable) != len(s.Capacity) {
		t.Errorf("capacity %v, allocatable %v", s.Capacity, s.Allocatable)
	}
}
