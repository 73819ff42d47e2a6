package object

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/node/host"
	"github.com/bulkhead-project/bulkhead/internal/test/testcri"
)

// TestAllocatable: reserved and withheld resources are both subtracted from the capacity, and the result is never
// negative.
func TestAllocatable(t *testing.T) {
	t.Parallel()
	m := &Measurer{
		Facts: host.Facts{CPUs: 2, MemoryBytes: 4 << 30}, Runtime: testcri.New(0), MaxPods: 110, DataDir: t.TempDir(),
		Reserved: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi"), "example.org/other": resource.MustParse("1")},
		Figures: Figures{Withheld: func(capacity corev1.ResourceList) corev1.ResourceList {
			if memory := capacity[corev1.ResourceMemory]; memory.Value() != 4<<30 {
				t.Errorf("asked about %s", &memory)
			}
			return corev1.ResourceList{
				corev1.ResourceMemory: resource.MustParse("100Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("1Ei"),
			}
		}},
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

// able is a runtime with a given status, or one that does not answer.
type able struct {
	*testcri.Runtime
	answer *runtimeapi.StatusResponse // nil if it does not answer
}

func (a able) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	if a.answer == nil {
		return nil, errors.New("gone")
	}
	return a.answer, nil
}

// TestFeatures: the Node shows the runtime's features, also while the runtime does not answer.
func TestFeatures(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
	k := &Keeper{o: Options{Client: client}}
	handlers := []*runtimeapi.RuntimeHandler{{Name: "bulkhead", Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}}}
	for _, step := range []struct {
		name     string
		answer   *runtimeapi.StatusResponse
		groups   bool
		handlers int
	}{
		{"that can", &runtimeapi.StatusResponse{Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}, RuntimeHandlers: handlers},
			true, 1},
		{"that does not answer", nil, true, 1},
		{"that is older", &runtimeapi.StatusResponse{}, false, 0},
	} {
		m := &Measurer{Runtime: able{testcri.New(0), step.answer}, DataDir: t.TempDir()}
		if err := k.report(t.Context(), get(t, client), m.Status(t.Context())); err != nil {
			t.Fatal(err)
		}
		s := get(t, client).Status
		if s.Features == nil || *s.Features.SupplementalGroupsPolicy != step.groups || len(s.RuntimeHandlers) != step.handlers {
			t.Errorf("a runtime %s: features %v, handlers %v", step.name, s.Features, s.RuntimeHandlers)
		}
		if s.NodeInfo.ContainerRuntimeVersion == "" {
			t.Errorf("a runtime %s has no version", step.name)
		}
	}
}
