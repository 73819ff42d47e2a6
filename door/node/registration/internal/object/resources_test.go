package object

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/bulkhead-project/bulkhead/door/node/host"
	"github.com/bulkhead-project/bulkhead/internal/test/testcri"
)

// reportedStatus returns the status of an existing Node after the keeper reported it.
func reportedStatus(t *testing.T, there corev1.NodeStatus, dataDir string) corev1.NodeStatus {
	t.Helper()
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Status: there})
	k := &Keeper{o: Options{Client: client}}
	m := &Measurer{Facts: host.Facts{CPUs: 2}, Runtime: testcri.New(0), DataDir: dataDir}
	if err := k.report(t.Context(), get(t, client), m.Status(t.Context())); err != nil {
		t.Fatal(err)
	}
	return get(t, client).Status
}

// TestOthersResources: an extended resource that another client added to the capacity stays and is allocatable. A
// kubelet's resources that this node does not have are removed.
func TestOthersResources(t *testing.T) {
	t.Parallel()
	s := reportedStatus(t, corev1.NodeStatus{
		Capacity: corev1.ResourceList{
			"example.com/foo": resource.MustParse("4"), "hugepages-2Mi": resource.MustParse("1Gi"), corev1.ResourceCPU: resource.MustParse("64"),
		},
		Allocatable: corev1.ResourceList{"example.com/gone": resource.MustParse("1"), "hugepages-2Mi": resource.MustParse("1Gi")},
	}, t.TempDir())
	for what, list := range map[string]corev1.ResourceList{"capacity": s.Capacity, "allocatable": s.Allocatable} {
		foo, cpu := list["example.com/foo"], list[corev1.ResourceCPU]
		_, gone := list["example.com/gone"]
		_, huge := list["hugepages-2Mi"]
		if foo.Value() != 4 || cpu.Value() != 2 || gone || huge {
			t.Errorf("%s: %v", what, list)
		}
	}
}

// TestUnmeasuredDisk: while the disk cannot be measured, its last reported size stays. Without one, none is reported.
func TestUnmeasuredDisk(t *testing.T) {
	t.Parallel()
	nowhere := filepath.Join(t.TempDir(), "none")
	storage := func(q string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse(q)}
	}
	s := reportedStatus(t, corev1.NodeStatus{Capacity: storage("10Gi"), Allocatable: storage("9Gi")}, nowhere)
	if s.Capacity.StorageEphemeral().String() != "10Gi" || s.Allocatable.StorageEphemeral().String() != "9Gi" {
		t.Errorf("capacity %v, allocatable %v", s.Capacity, s.Allocatable)
	}
	s = reportedStatus(t, corev1.NodeStatus{}, nowhere)
	if _, is := s.Capacity[corev1.ResourceEphemeralStorage]; is {
		t.Errorf("capacity %v", s.Capacity)
	}
}
