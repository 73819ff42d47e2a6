package podapi

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// containers checks a pod's containers, including init containers. Names and host ports must be unique.
func (c checker) containers(spec *corev1.PodSpec, volumes map[string]bool) {
	names, hostPorts := map[string]bool{}, map[string]bool{}
	check := func(container *corev1.Container, at string) {
		c.name(at+"name", container.Name, validation.IsDNS1123Label)
		if names[container.Name] {
			c.fault(at+"name", "%q appears twice", container.Name)
		}
		names[container.Name] = true
		c.container(container, at, volumes)
		c.ports(container.Ports, at, hostPorts)
		c.restarts(container, at)
		c.checkTerminationMessage(container, at)
	}
	for i := range spec.InitContainers {
		container, at := &spec.InitContainers[i], fmt.Sprintf("spec.initContainers[%d].", i)
		check(container, at)
		if podspec.InitKind(container) == podspec.Sidecar {
			c.lifecycle(container.Lifecycle, at+"lifecycle.", spec)
			continue
		}
		for field, set := range map[string]bool{
			"lifecycle": container.Lifecycle != nil, "livenessProbe": container.LivenessProbe != nil,
			"readinessProbe": container.ReadinessProbe != nil, "startupProbe": container.StartupProbe != nil,
		} {
			if set {
				c.fault(at+field, "an init container has one only with restartPolicy Always")
			}
		}
	}
	for i := range spec.Containers {
		container, at := &spec.Containers[i], fmt.Sprintf("spec.containers[%d].", i)
		check(container, at)
		c.lifecycle(container.Lifecycle, at+"lifecycle.", spec)
	}
}

// lifetime checks the pod's deadline and readiness gates.
func (c checker) lifetime(spec *corev1.PodSpec) {
	if seconds := spec.ActiveDeadlineSeconds; seconds != nil && (*seconds < 1 || *seconds > math.MaxInt32) {
		c.fault("spec.activeDeadlineSeconds", "%d is not between 1 and %d", *seconds, math.MaxInt32)
	}
	for i, gate := range spec.ReadinessGates {
		c.name(fmt.Sprintf("spec.readinessGates[%d].conditionType", i), string(gate.ConditionType), validation.IsQualifiedName)
	}
}

// The API's limits for a container's restart rules.
const (
	maxRules  = 20
	maxValues = 255
)

func (c checker) restarts(container *corev1.Container, at string) {
	if container.RestartPolicy != nil {
		oneOf(c, at+"restartPolicy", *container.RestartPolicy,
			corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever)
	} else if len(container.RestartPolicyRules) > 0 {
		c.fault(at+"restartPolicy", "is required together with restartPolicyRules")
	}
	if n := len(container.RestartPolicyRules); n > maxRules {
		c.fault(at+"restartPolicyRules", "%d rules are more than %d", n, maxRules)
	}
	for i, rule := range container.RestartPolicyRules {
		at := fmt.Sprintf("%srestartPolicyRules[%d].", at, i)
		oneOf(c, at+"action", rule.Action, corev1.ContainerRestartRuleActionRestart)
		if rule.ExitCodes == nil {
			c.fault(at+"exitCodes", "is required")
			continue
		}
		oneOf(c, at+"exitCodes.operator", rule.ExitCodes.Operator,
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)
		switch values := slices.Sorted(slices.Values(rule.ExitCodes.Values)); {
		case len(values) == 0:
			c.fault(at+"exitCodes.values", "is required")
		case len(values) > maxValues:
			c.fault(at+"exitCodes.values", "%d values are more than %d", len(values), maxValues)
		case len(slices.Compact(values)) < len(rule.ExitCodes.Values):
			c.fault(at+"exitCodes.values", "a value appears twice")
		}
	}
}

// checkTerminationMessage checks the source of a container's termination message.
func (c checker) checkTerminationMessage(container *corev1.Container, at string) {
	oneOf(c, at+"terminationMessagePolicy", container.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)
	if at, file := at+"terminationMessagePath", container.TerminationMessagePath; !path.IsAbs(file) ||
		path.Clean(file) == "/" || strings.ContainsAny(file, ":\x00") || slices.Contains(strings.Split(file, "/"), "..") {
		c.fault(at, "%q is not a place for a file", file)
	}
}
