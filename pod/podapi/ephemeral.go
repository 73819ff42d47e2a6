package podapi

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Ephemeral gives an ephemeral container the API server's defaults, and tells
// what the API server would refuse in it as FieldErrors. That its name is free
// and its target is there is for the pod to say.
func Ephemeral(spec *corev1.EphemeralContainer) error {
	container := corev1.Container(spec.EphemeralContainerCommon)
	containerDefaults(&container)
	var faults FieldErrors
	c := checker{pod: &corev1.PodSpec{}, report: func(field, message string) {
		faults = append(faults, &FieldError{File: "ephemeral container", Field: field, Message: message, class: ErrInvalid})
	}}
	c.name("name", container.Name, validation.IsDNS1123Label)
	c.container(&container, "", nil)
	c.lastWords(&container, "")
	for field, set := range map[string]bool{
		"ports": len(container.Ports) > 0, "lifecycle": container.Lifecycle != nil, "livenessProbe": container.LivenessProbe != nil,
		"readinessProbe": container.ReadinessProbe != nil, "startupProbe": container.StartupProbe != nil,
		"resources":     len(container.Resources.Limits)+len(container.Resources.Requests) > 0,
		"restartPolicy": container.RestartPolicy != nil, "restartPolicyRules": len(container.RestartPolicyRules) > 0,
	} {
		if set {
			c.fault(field, "is not allowed in an ephemeral container")
		}
	}
	spec.EphemeralContainerCommon = corev1.EphemeralContainerCommon(container)
	if len(faults) > 0 {
		return faults
	}
	return nil
}
