package admission

import (
	"cmp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// node returns a Node with two processors, 1 GiB, three pods, a label and a taint.
func node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{"disk": "ssd", corev1.LabelOSStable: "linux"}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "vm", Value: "only", Effect: corev1.TaintEffectNoExecute}, {Key: "later", Effect: corev1.TaintEffectNoSchedule},
		}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"),
			corev1.ResourcePods: resource.MustParse("3"),
		}},
	}
}

func pod(t *testing.T, uid, spec string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "default"}}
	p.UID = "uid-" + p.UID + "-" + p.UID
	if err := yaml.UnmarshalStrict([]byte("{tolerations: [{key: vm, operator: Exists}], "+spec+"}"), &p.Spec); err != nil {
		t.Fatalf("%v in %s", err, spec)
	}
	p.UID = "uid"
	return p
}

// TestReasons checks that each unmet requirement is rejected with a kubelet's reason.
func TestReasons(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ spec, reason string }{
		{`containers: [{name: c, resources: {requests: {cpu: "2", memory: 1Gi}}}]`, ""},
		{`containers: [{name: c, resources: {requests: {cpu: 2001m}}}]`, "OutOfcpu"},
		{`initContainers: [{name: i, resources: {requests: {cpu: 3}}}], containers: [{name: c}]`, "OutOfcpu"},
		{`overhead: {memory: 1Gi}, containers: [{name: c, resources: {requests: {memory: 1Mi}}}]`, "OutOfmemory"},
		{`containers: [{name: c, resources: {limits: {example.org/gpu: 1}, requests: {example.org/gpu: 1}}}]`, "OutOfexample.org/gpu"},
		{`nodeSelector: {disk: ssd}, containers: [{name: c}]`, ""},
		{`nodeSelector: {disk: hdd}, containers: [{name: c}]`, "NodeAffinity"},
		{`affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [
  {key: disk, operator: In, values: [hdd]}]}]}}}, containers: [{name: c}]`, "NodeAffinity"},
		{`os: {name: windows}, containers: [{name: c}]`, "PodOSNotSupported"},
		{`hostPID: true, containers: [{name: c}]`, "UnexpectedAdmissionError"},
		{`hostIPC: true, containers: [{name: c}]`, "UnexpectedAdmissionError"},
		{`volumes: [{name: v, nfs: {server: s, path: /}}], containers: [{name: c}]`, "UnexpectedAdmissionError"},
		{`volumes: [{name: v, persistentVolumeClaim: {claimName: c}}], containers: [{name: c}]`, ""},
		{`volumes: [{name: v, csi: {driver: d}}], containers: [{name: c}]`, ""},
		{`volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce]}}}}], containers: [{name: c}]`, ""},
		{`volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}], containers: [{name: c}]`, ""},
		{`volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {path: t}}]}}], containers: [{name: c}]`, "UnexpectedAdmissionError"},
		{`hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet, nodeName: node, containers: [{name: c}]`, ""},
		{`runtimeClassName: other, schedulerName: x, priority: 5, containers: [{name: c}]`, ""}, // the runtime refuses it
	} {
		no := New(node, nil, nil).Admit(pod(t, "p", tt.spec))
		if tt.reason == "" && no != nil || tt.reason != "" && (no == nil || no.Reason != tt.reason || no.Message == "") {
			t.Errorf("%s: %+v, want %q", tt.spec, no, tt.reason)
		}
	}
	intolerant := pod(t, "p", "containers: [{name: c}]")
	intolerant.Spec.Tolerations = nil
	if no := New(node, nil, nil).Admit(intolerant); no == nil || no.Reason != "TaintToleration" || !strings.Contains(no.Message, "vm") {
		t.Errorf("without a toleration: %+v", no)
	}
}

// TestLedger checks that pods reserve resources, release them, and are counted once.
func TestLedger(t *testing.T) {
	t.Parallel()
	a := New(node, nil, nil)
	one := pod(t, "one", `containers: [{name: c, resources: {requests: {cpu: "1"}}}]`)
	two, three, four := one.DeepCopy(), one.DeepCopy(), one.DeepCopy()
	two.UID, three.UID, four.UID = "2", "3", "4"
	four.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	for _, p := range []*corev1.Pod{one, two, one} {
		if no := a.Admit(p); no != nil {
			t.Errorf("%s: %+v", p.UID, no)
		}
	}
	if no := a.Admit(three); no == nil || no.Reason != "OutOfcpu" {
		t.Errorf("a third processor: %+v", no)
	}
	if no := a.Admit(four); no != nil {
		t.Errorf("a pod without requests: %+v", no)
	}
	a.Release("4")
	a.Release(one.UID)
	if no := a.Admit(three); no != nil {
		t.Errorf("after another pod's end: %+v", no)
	}
	a.AddRunning(one) // a running pod
	a.Release("3")
	if no := a.Admit(three); no == nil {
		t.Error("a running pod was not counted")
	}
}

// TestResize checks that a running pod gets the resources that it requests if they are free, and otherwise keeps its
// own.
func TestResize(t *testing.T) {
	t.Parallel()
	a := New(node, nil, nil)
	cpu := func(uid, n string) *corev1.Pod {
		p := pod(t, uid, `containers: [{name: c, resources: {requests: {cpu: "`+n+`"}}}]`)
		p.UID = types.UID(uid)
		return p
	}
	a.AddRunning(cpu("a", "1"))
	a.AddRunning(cpu("b", "1"))
	for _, step := range []struct {
		uid, cpu, reason string
		held             string // the CPU that it has afterwards; empty means the requested one
	}{
		{"a", "1", "", ""},
		{"b", "1", "", ""},
		{"a", "1500m", "Deferred", "1"},
		{"a", "3", "Infeasible", "1"},
		{"b", "500m", "", "1"}, // the last resize was refused
		{"a", "1500m", "Deferred", "1"},
		{"b", "500m", "", ""},
		{"a", "1500m", "", ""},
		{"b", "600m", "Deferred", "500m"},
		{"b", "100m", "", ""},
		{"a", "1900m", "", "1800m"}, // refused as well
		{"a", "1800m", "", ""},
	} {
		reason, message := a.Resize(cpu(step.uid, step.cpu))
		if reason != step.reason || (message == "") != (reason == "") {
			t.Errorf("%+v: %s, %s", step, reason, message)
		}
		a.Hold(cpu(step.uid, cmp.Or(step.held, step.cpu)))
	}
	for _, p := range []*corev1.Pod{cpu("none", "1"), cpu("none", "3")} { // one was released, the other never admitted
		reason, _ := a.Resize(p)
		if a.Hold(p); reason != "" {
			t.Errorf("resize of a pod that was not admitted: %s", reason)
		}
	}
	if no := a.Admit(cpu("c", "100m")); no != nil {
		t.Errorf("a pod that fits after the resizes: %+v", no)
	}
	if reason, _ := New(func() *corev1.Node { return nil }, nil, nil).Resize(cpu("a", "100")); reason != "" {
		t.Errorf("on a node that is not registered: %s", reason)
	}
}

// TestPressure checks that a node under pressure rejects pods.
func TestPressure(t *testing.T) {
	t.Parallel()
	a := New(node, nil, func(*corev1.Pod) (reason, message string) {
		return "Evicted", "The node had condition: [DiskPressure]. "
	})
	if no := a.Admit(pod(t, "p", "containers: [{name: c}]")); no == nil || no.Reason != "Evicted" {
		t.Errorf("under pressure: %+v", no)
	}
}

// TestLacks checks that Lacks returns exactly the missing resources, and counts the resources of pods that are gone as
// free.
func TestLacks(t *testing.T) {
	t.Parallel()
	a := New(node, nil, nil)
	one := pod(t, "one", `containers: [{name: c, resources: {requests: {cpu: 1500m, memory: 1Gi}}}]`)
	one.UID = "1"
	a.AddRunning(one)
	want := pod(t, "two", `containers: [{name: c, resources: {requests: {cpu: "1"}}}]`)
	want.UID = "2"
	nobody, first := func(types.UID) bool { return false }, func(uid types.UID) bool { return uid == "1" }
	got := a.Lacks(want, nobody)
	if cpu := got[corev1.ResourceCPU]; len(got) != 1 || cpu.MilliValue() != 500 {
		t.Errorf("lacking resources: %v", got)
	}
	if got := a.Lacks(want, first); len(got) != 0 {
		t.Errorf("lacking resources without the other pod: %v", got)
	}
	if got := New(func() *corev1.Node { return nil }, nil, nil).Lacks(want, nobody); len(got) != 0 {
		t.Errorf("lacking resources on an unregistered node: %v", got)
	}
}
