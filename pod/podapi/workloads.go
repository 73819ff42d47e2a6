package podapi

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bulkhead-project/bulkhead/pod/podapi/fields"
)

// maxReplicas bounds the pods of one workload.
const maxReplicas = 100

// workload is the common form of all workloads: pods of one template.
type workload struct {
	meta     *metav1.ObjectMeta
	template *corev1.PodTemplateSpec
	replicas *int32
	field    string                 // the field of replicas; empty means spec.replicas
	policies []corev1.RestartPolicy // allowed policies
	ordinal  bool                   // every pod has a number in its name
	first    int32                  // the first number
	finish   func(pod *corev1.Pod, number int32)
	owner    metav1.OwnerReference
	check    func(c checker) // checks fields of the workload's kind; nil for none
	// volumes are claim templates, and claims returns a pod's own claims; nil for none.
	volumes  []corev1.PersistentVolumeClaim
	claims   func(pod *corev1.Pod) []*corev1.PersistentVolumeClaim
	selector *metav1.LabelSelector // its labels are copied to the claims; nil for none
}

var always = []corev1.RestartPolicy{corev1.RestartPolicyAlways}

func (d *decoder) deployment(text []byte, prefix string) {
	object := &appsv1.Deployment{}
	d.workload(text, prefix, object, func() workload {
		hash := hashOf(&object.Spec.Template)
		return workload{
			meta: &object.ObjectMeta, template: &object.Spec.Template, replicas: object.Spec.Replicas, policies: always,
			finish: func(pod *corev1.Pod, _ int32) { label(pod, appsv1.DefaultDeploymentUniqueLabelKey, hash) },
		}
	})
}

func (d *decoder) replicaSet(text []byte, prefix string) {
	object := &appsv1.ReplicaSet{}
	d.workload(text, prefix, object, func() workload {
		return workload{meta: &object.ObjectMeta, template: &object.Spec.Template, replicas: object.Spec.Replicas, policies: always}
	})
}

func (d *decoder) daemonSet(text []byte, prefix string) {
	object := &appsv1.DaemonSet{}
	d.workload(text, prefix, object, func() workload {
		hash := hashOf(&object.Spec.Template)
		return workload{
			meta: &object.ObjectMeta, template: &object.Spec.Template, policies: always,
			finish: func(pod *corev1.Pod, _ int32) {
				label(pod, appsv1.ControllerRevisionHashLabelKey, hash)
				label(pod, "pod-template-generation", "1")
			},
		}
	})
}

func (d *decoder) statefulSet(text []byte, prefix string) {
	object := &appsv1.StatefulSet{}
	d.workload(text, prefix, object, func() workload {
		revision, first := object.Name+"-"+hashOf(&object.Spec.Template), int32(0)
		if ordinals := object.Spec.Ordinals; ordinals != nil {
			first = max(ordinals.Start, 0)
		}
		return workload{
			meta: &object.ObjectMeta, template: &object.Spec.Template, replicas: object.Spec.Replicas, policies: always,
			ordinal: true, first: first, volumes: object.Spec.VolumeClaimTemplates, selector: object.Spec.Selector,
			claims: func(pod *corev1.Pod) []*corev1.PersistentVolumeClaim { return claims(object, pod) },
			finish: func(pod *corev1.Pod, number int32) {
				label(pod, appsv1.StatefulSetPodNameLabel, pod.Name)
				label(pod, appsv1.PodIndexLabel, fmt.Sprint(number))
				if len(validation.IsValidLabelValue(revision)) == 0 {
					label(pod, appsv1.ControllerRevisionHashLabelKey, revision)
				}
				named(pod)
				pod.Spec.Subdomain = object.Spec.ServiceName
			},
		}
	})
}

// hashOf returns the hash of a template for the labels of its pods.
func hashOf(template *corev1.PodTemplateSpec) string {
	h := fnv.New32a()
	_ = json.NewEncoder(h).Encode(template) // it was read from JSON
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}

// named sets a pod's hostname to its name, overriding its template.
func named(pod *corev1.Pod) {
	pod.Spec.Hostname = ""
	if len(validation.IsDNS1123Label(pod.Name)) == 0 {
		pod.Spec.Hostname = pod.Name
	}
}

func label(pod *corev1.Pod, key, value string) {
	pod.Labels = maps.Clone(pod.Labels)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[key] = value
}

// workload decodes an object and adds its pods.
func (d *decoder) workload(text []byte, prefix string, object any, of func() workload) {
	before := len(d.problems)
	if !d.strictly(text, object, prefix) {
		return
	}
	fields.Refuse(object, d.reporter(errNotHonoured, prefix))
	w := of()
	if o, is := object.(runtime.Object); is {
		gvk := o.GetObjectKind().GroupVersionKind()
		w.owner = metav1.OwnerReference{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: w.meta.Name, UID: newUID(),
			Controller: new(true), BlockOwnerDeletion: new(true)}
	}
	invalid := d.reporter(errInvalid, prefix)
	c := checker{report: invalid}
	c.objectMeta(w.meta)
	if w.replicas != nil && (*w.replicas < 0 || *w.replicas > maxReplicas) {
		setDefault(&w.field, "spec.replicas")
		c.fault(w.field, "%d is not between 0 and %d", *w.replicas, maxReplicas)
	}
	if w.check != nil {
		w.check(c)
	}
	c.claimTemplates(w.volumes)
	const at = "spec.template."
	policy := w.template.Spec.RestartPolicy
	setDefault(&policy, corev1.RestartPolicyAlways)
	oneOf(c, at+"spec.restartPolicy", policy, w.policies...)
	if len(d.problems) > before {
		return
	}
	if w.replicas != nil && !d.count(len(text)*int(max(*w.replicas-1, 0))) {
		return
	}
	if w.claims != nil && !d.countClaims(w) {
		return
	}
	for _, pod := range w.pods() {
		var own []*corev1.PersistentVolumeClaim
		if w.claims != nil {
			own = w.claims(pod)
		}
		validate(pod, func(field, message string) {
			// The fields of the workload itself have been checked.
			if !strings.HasPrefix(field, "metadata.name") {
				field = at + field
			}
			invalid(field, message)
		})
		if len(d.problems) > before {
			return
		}
		if !d.once("Pod", &pod.ObjectMeta, prefix) {
			return
		}
		d.keep(pod)
		for _, claim := range own {
			if !d.once(claim.Kind, &claim.ObjectMeta, prefix) || !d.keepClaim(claim) {
				return
			}
		}
	}
}

// pods makes the pods, with defaults.
func (w workload) pods() (out []*corev1.Pod) {
	count := int32(1)
	if w.replicas != nil {
		count = *w.replicas
	}
	for i := range count {
		number := w.first + i
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: w.meta.Name, Namespace: w.meta.Namespace,
			Labels: w.template.Labels, Annotations: w.template.Annotations,
			OwnerReferences: []metav1.OwnerReference{w.owner},
		}, Spec: w.template.Spec}
		if count > 1 || w.ordinal {
			pod.Name = fmt.Sprintf("%s-%d", w.meta.Name, number)
		}
		pod = pod.DeepCopy()
		setDefaults(pod)
		if w.finish != nil {
			w.finish(pod, number)
		}
		out = append(out, pod)
	}
	return out
}
