package podapi

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Ephemeral sets the API server's defaults for an ephemeral container. It returns as FieldErrors the faults for which
// the API server would refuse it. It does not check the name against the pod's containers, or the target.
func Ephemeral(spec *corev1.EphemeralContainer) error {
	container := corev1.Container(spec.EphemeralContainerCommon)
	containerDefaults(&container)
	var faults FieldErrors
	c := checker{pod: &corev1.PodSpec{}, report: func(field, message string) {
		faults = append(faults, &FieldError{File: "ephemeral container", Field: field, Message: message, class: errInvalid})
	}}
	c.name("name", container.Name, validation.IsDNS1123Label)
	c.container(&container, "", nil)
	c.checkTerminationMessage(&container, "")
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
