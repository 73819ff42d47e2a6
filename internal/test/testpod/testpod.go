// Package testpod makes pods and the objects they refer to, for the tests of pod and the packages below it.
package testpod

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/volume"
)

// New returns a pod of containers with these names and the image here:1.
func New(policy corev1.RestartPolicy, names ...string) *corev1.Pod {
	grace := int64(30)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u-1"},
		Spec:       corev1.PodSpec{RestartPolicy: policy, TerminationGracePeriodSeconds: &grace},
	}
	for _, name := range names {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: "here:1", ImagePullPolicy: corev1.PullIfNotPresent})
	}
	return pod
}

// Resources returns a resource list from "name=quantity" words.
func Resources(words ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, word := range words {
		name, quantity, _ := strings.Cut(word, "=")
		out[corev1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return out
}

// ConfigMap returns a ConfigMap with data of alternating keys and values.
func ConfigMap(name string, data ...string) *corev1.ConfigMap {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{}}
	for i := 0; i < len(data); i += 2 {
		object.Data[data[i]] = data[i+1]
	}
	return object
}

// Secret returns a Secret with data of alternating keys and values.
func Secret(name string, data ...string) *corev1.Secret {
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{}}
	for i := 0; i < len(data); i += 2 {
		object.Data[data[i]] = []byte(data[i+1])
	}
	return object
}

// Set returns a set of these objects.
func Set(t *testing.T, configMaps []*corev1.ConfigMap, secrets []*corev1.Secret) *volume.Set {
	t.Helper()
	set := &volume.Set{}
	if err := set.Apply(configMaps, secrets); err != nil {
		t.Fatal(err)
	}
	return set
}

// RestartOn returns a restart rule with one operator, "In" or "NotIn".
func RestartOn(operator string, values ...int32) corev1.ContainerRestartRule {
	return corev1.ContainerRestartRule{
		Action:    corev1.ContainerRestartRuleActionRestart,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOperator(operator), Values: values},
	}
}

// ConfigVolume returns a volume of the files of a ConfigMap.
func ConfigVolume(name, object string) corev1.Volume {
	source := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: object}}
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: source}}
}
