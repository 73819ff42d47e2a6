package object

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/node/host"
)

// Measurer builds a Node's status. Its fields are set before the first call.
type Measurer struct {
	Facts    host.Facts
	Runtime  internalapi.RuntimeService
	Name     string
	Address  string
	Port     int32
	MaxPods  int64
	DataDir  string // on the file system with the pods' disks
	Reserved corev1.ResourceList
	Version  string // of the node program
	Figures
}

// Figures are the parts of a Node's status that describe the use of the host.
type Figures struct {
	// Withheld, if set, returns the resources that pods cannot have, in addition to Reserved.
	Withheld func(capacity corev1.ResourceList) corev1.ResourceList
	// Pressure, if set, reports whether the node is under that kind of pressure.
	Pressure func(corev1.NodeConditionType) bool
	// Images, if set, lists the node's images.
	Images func(ctx context.Context) ([]corev1.ContainerImage, error)
	// Ending, if set, reports whether and why the node accepts no more pods.
	Ending func() (message string, ending bool)
}

// Status implements Options.Status.
func (m *Measurer) Status(ctx context.Context) corev1.NodeStatus {
	s := corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: m.Address}, {Type: corev1.NodeHostName, Address: m.Name},
		},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: m.Port}},
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewQuantity(int64(m.Facts.CPUs), resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(int64(m.Facts.MemoryBytes), resource.BinarySI),
			corev1.ResourcePods:   *resource.NewQuantity(m.MaxPods, resource.DecimalSI),
		},
		NodeInfo: corev1.NodeSystemInfo{
			MachineID: m.Facts.MachineID, SystemUUID: m.Facts.SystemUUID, BootID: m.Facts.BootID,
			KernelVersion: m.Facts.Kernel, OSImage: m.Facts.OSImage, OperatingSystem: "linux", Architecture: m.Facts.Arch,
			KubeletVersion: Version(m.Version),
		},
	}
	if disk, err := host.DiskOf(m.DataDir); err == nil { // if unknown, leave it out: 0 would reject all pods
		s.Capacity[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(disk.Total), resource.BinarySI)
	}
	s.Allocatable = allocatable(s.Capacity, m.Reserved)
	if m.Withheld != nil {
		s.Allocatable = allocatable(s.Allocatable, m.Withheld(s.Capacity))
	}
	runtimeErr := m.askRuntime(ctx, &s)
	if m.Images != nil && runtimeErr == nil {
		s.Images, runtimeErr = m.Images(ctx)
	}
	under := func(kind corev1.NodeConditionType) bool { return m.Pressure != nil && m.Pressure(kind) }
	s.Conditions = []corev1.NodeCondition{
		pressure(corev1.NodeMemoryPressure, under(corev1.NodeMemoryPressure),
			"KubeletHasSufficientMemory", "kubelet has sufficient memory available",
			"KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
		pressure(corev1.NodeDiskPressure, under(corev1.NodeDiskPressure),
			"KubeletHasNoDiskPressure", "kubelet has no disk pressure",
			"KubeletHasDiskPressure", "kubelet has disk pressure"),
		pressure(corev1.NodePIDPressure, under(corev1.NodePIDPressure),
			"KubeletHasSufficientPID", "kubelet has sufficient PID available",
			"KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
		m.ready(runtimeErr),
	}
	return s
}

func allocatable(capacity, reserved corev1.ResourceList) corev1.ResourceList {
	out := capacity.DeepCopy()
	for name, quantity := range reserved {
		have, known := out[name]
		if !known {
			continue
		}
		if have.Sub(quantity); have.Sign() < 0 {
			have = resource.Quantity{Format: have.Format}
		}
		out[name] = have
	}
	return out
}

func pressure(kind corev1.NodeConditionType, is bool, goodReason, good, badReason, bad string) corev1.NodeCondition {
	if is {
		return corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, Reason: badReason, Message: bad}
	}
	return corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: goodReason, Message: good}
}

// askRuntime adds the runtime's version and features, and returns an error if the runtime cannot run pods. Features
// stays nil if the runtime does not answer.
func (m *Measurer) askRuntime(ctx context.Context, s *corev1.NodeStatus) error {
	version, err := m.Runtime.Version(ctx, "")
	if err != nil {
		return fmt.Errorf("ask the runtime for its version: %w", err)
	}
	s.NodeInfo.ContainerRuntimeVersion = version.GetRuntimeName() + "://" + version.GetRuntimeVersion()
	status, err := m.Runtime.Status(ctx, false)
	if err != nil {
		return fmt.Errorf("ask the runtime for its status: %w", err)
	}
	for _, h := range status.GetRuntimeHandlers() {
		readOnly, users := h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces()
		s.RuntimeHandlers = append(s.RuntimeHandlers, corev1.NodeRuntimeHandler{
			Name: h.GetName(), Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &readOnly, UserNamespaces: &users},
		})
	}
	s.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: new(status.GetFeatures().GetSupplementalGroupsPolicy())}
	for _, c := range status.GetStatus().GetConditions() {
		if !c.GetStatus() && (c.GetType() == runtimeapi.RuntimeReady || c.GetType() == runtimeapi.NetworkReady) {
			return fmt.Errorf("%s: %s: %s", c.GetType(), c.GetReason(), c.GetMessage())
		}
	}
	return nil
}

func (m *Measurer) ready(err error) corev1.NodeCondition {
	if m.Ending != nil {
		if message, ending := m.Ending(); ending {
			return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: message}
		}
	}
	if err != nil {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: err.Error()}
	}
	const message = "bulkhead node is ready"
	return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: message}
}

// Version returns the kubelet version of the Node: the Kubernetes version of the API that the program was built with,
// and the program's own version.
func Version(own string) string {
	kubernetes := "v1.0.0"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if rest, ok := strings.CutPrefix(d.Version, "v0."); ok && d.Path == "k8s.io/api" {
				kubernetes = "v1." + rest
			}
		}
	}
	return kubernetes + "-bulkhead." + own
}
