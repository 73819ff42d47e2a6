// Package admission decides which pods a node accepts, as a kubelet does. The scheduler may know less than the node,
// and a pod that names its node was never scheduled.
package admission

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/pod/podapi/fields"
)

// Admission counts the resources and host ports of a node's pods. It is safe for concurrent use.
type Admission struct {
	node     func() *corev1.Node
	refuse   func(*corev1.Pod) string
	pressure func(*corev1.Pod) (reason, message string)

	mu    sync.Mutex
	freed func() // may be nil
	given map[types.UID]corev1.ResourceList
	ports map[types.UID][]hostPort // only of pods with host ports
}

// New returns the admission of the Node that node returns; nil means not registered yet. refuse returns why the runtime
// cannot run a pod, or an empty string. pressure returns why the node does not accept a pod in its present state, with
// an empty reason if it does. Both may be nil.
func New(node func() *corev1.Node, refuse func(*corev1.Pod) string, pressure func(*corev1.Pod) (reason, message string)) *Admission {
	return &Admission{
		node: node, refuse: refuse, pressure: pressure, given: map[types.UID]corev1.ResourceList{}, ports: map[types.UID][]hostPort{},
	}
}

// AddRunning counts the resources and ports of a running pod without a decision.
func (a *Admission) AddRunning(pod *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.assign(pod, Requests(pod))
}

// Release frees a pod's resources and ports.
func (a *Admission) Release(uid types.UID) {
	a.mu.Lock()
	_, had := a.given[uid]
	delete(a.given, uid)
	delete(a.ports, uid)
	freed := a.freed
	a.mu.Unlock()
	if had && freed != nil {
		freed()
	}
}

// OnFreed sets the function that is called when a pod has released something. It must not block.
func (a *Admission) OnFreed(freed func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.freed = freed
}

// Admit implements control.Admission.
func (a *Admission) Admit(pod *corev1.Pod) *control.Rejection {
	if a.pressure != nil {
		if reason, message := a.pressure(pod); reason != "" {
			return &control.Rejection{Reason: reason, Message: message}
		}
	}
	node := a.node()
	if node != nil {
		if no := fits(pod, node); no != nil {
			return no
		}
	}
	if no := unsupported(pod); no != nil {
		return no
	}
	if a.refuse != nil {
		if why := a.refuse(pod); why != "" {
			return &control.Rejection{Reason: "UnexpectedAdmissionError", Message: why}
		}
	}
	if node == nil {
		return a.admitUnregistered(pod)
	}
	return a.reserve(pod, node)
}

// admitUnregistered admits a pod before the node is registered, if its ports are free. No pod has been scheduled to the
// node yet, so only pods that name their node come here.
func (a *Admission) admitUnregistered(pod *corev1.Pod) *control.Rejection {
	a.mu.Lock()
	defer a.mu.Unlock()
	if no := a.checkPorts(pod); no != nil {
		return no
	}
	a.assign(pod, Requests(pod))
	return nil
}

// fits checks the pod's node affinity, tolerations and operating system.
func fits(pod *corev1.Pod, node *corev1.Node) *control.Rejection {
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !ok {
		const message = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
		return &control.Rejection{Reason: "NodeAffinity", Message: message}
	}
	taint, intolerable := schedulinghelper.FindMatchingUntoleratedTaint(klog.NewKlogr(), node.Spec.Taints, pod.Spec.Tolerations,
		func(t *corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }, true)
	if intolerable {
		return &control.Rejection{Reason: "TaintToleration", Message: fmt.Sprintf(
			"Predicate TaintToleration failed: node(s) had untolerated taint {%s: %s}", taint.Key, taint.Value)}
	}
	for name, asked := range map[string]string{
		corev1.LabelOSStable: osOf(pod),
	} {
		if have := node.Labels[name]; asked != "" && have != "" && asked != have {
			return &control.Rejection{Reason: "PodOSNotSupported", Message: fmt.Sprintf(
				"Failed to admit pod as the OS field doesn't match node OS: %s", asked)}
		}
	}
	return nil
}

func osOf(pod *corev1.Pod) string {
	if pod.Spec.OS == nil {
		return ""
	}
	return string(pod.Spec.OS.Name)
}

// reserve counts the pod's resources and ports if they are free on the node.
func (a *Admission) reserve(pod *corev1.Pod, node *corev1.Node) *control.Rejection {
	a.mu.Lock()
	defer a.mu.Unlock()
	if no := a.checkPorts(pod); no != nil { // before the resources, for which other pods may be ended
		return no
	}
	want, used := Requests(pod), a.used(itself(pod))
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, string(name))
	}
	slices.Sort(names)
	for _, name := range names {
		asked, has, taken := want[corev1.ResourceName(name)], node.Status.Allocatable[corev1.ResourceName(name)], used[corev1.ResourceName(name)]
		total := taken.DeepCopy()
		total.Add(asked)
		if !asked.IsZero() && total.Cmp(has) > 0 {
			return &control.Rejection{Reason: "OutOf" + name, Message: fmt.Sprintf(
				"Node didn't have enough resource: %s, requested: %s, used: %s, capacity: %s", name, &asked, &taken, &has)}
		}
	}
	a.assign(pod, want)
	return nil
}

// itself returns a filter that matches the pod's UID.
func itself(pod *corev1.Pod) func(types.UID) bool {
	return func(uid types.UID) bool { return uid == pod.UID }
}

// used returns the resources of all pods that the filter does not match. The caller holds mu.
func (a *Admission) used(without func(types.UID) bool) corev1.ResourceList {
	used := corev1.ResourceList{}
	for uid, list := range a.given {
		if without(uid) {
			continue
		}
		for name, quantity := range list {
			sum := used[name]
			sum.Add(quantity)
			used[name] = sum
		}
	}
	return used
}

// Lacks returns the resources that a pod requests beyond the node's free ones. Resources of pods for which gone returns
// true count as free. The result contains only resources that are short.
func (a *Admission) Lacks(pod *corev1.Pod, gone func(types.UID) bool) corev1.ResourceList {
	lacks := corev1.ResourceList{}
	node := a.node()
	if node == nil {
		return lacks
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	used := a.used(func(other types.UID) bool { return other == pod.UID || gone(other) })
	for name, asked := range Requests(pod) {
		lack := used[name].DeepCopy()
		lack.Add(asked)
		lack.Sub(node.Status.Allocatable[name])
		if !asked.IsZero() && lack.Sign() > 0 {
			lacks[name] = lack
		}
	}
	return lacks
}

// Requests returns the resources that the scheduler counts for a pod, with the pod itself as one of
// corev1.ResourcePods.
func Requests(pod *corev1.Pod) corev1.ResourceList {
	list := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	list[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return list
}

// clustered are fields that need a cluster. A node's pods may have them.
var clustered = []string{
	"metadata.finalizers", "spec.ephemeralContainers", "spec.dnsPolicy", "spec.nodeSelector",
	"spec.nodeName", "spec.hostNetwork", "spec.affinity", "spec.runtimeClassName", "spec.schedulingGates", "spec.schedulingGroup",
	"spec.evictionResponders",
}

// clusteredVolumes are volume sources that need a cluster.
var clusteredVolumes = []string{".serviceAccountToken", ".ephemeral", ".csi"}

// unsupported rejects a pod with a field that Bulkhead does not support.
func unsupported(pod *corev1.Pod) *control.Rejection {
	var all []string
	fields.Refuse(pod, func(field, message string) {
		within := func(known string) bool {
			return field == known || strings.HasPrefix(field, known+".") || strings.HasPrefix(field, known+"[")
		}
		volume := strings.HasPrefix(field, "spec.volumes[") && slices.ContainsFunc(clusteredVolumes, func(kind string) bool {
			return strings.HasSuffix(field, kind)
		})
		resources := strings.Contains(field, ".resources.requests.") || strings.Contains(field, ".resources.limits.")
		if !volume && !resources && !slices.ContainsFunc(clustered, within) {
			all = append(all, field+" "+message)
		}
	})
	if len(all) == 0 {
		return nil
	}
	const most = 3
	text := strings.Join(all[:min(len(all), most)], "; ")
	return &control.Rejection{Reason: "UnexpectedAdmissionError", Message: text}
}
