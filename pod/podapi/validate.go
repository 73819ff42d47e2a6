package podapi

import (
	"fmt"
	"net"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bulkhead-project/bulkhead/api/annotations"
)

// checker reports the faults of fields.
type checker struct {
	report func(field, message string)
	pod    *corev1.PodSpec // the pod with the fields
}

func (c checker) fault(field, format string, args ...any) {
	c.report(field, fmt.Sprintf(format, args...))
}

// name reports the faults of a required name.
func (c checker) name(field, name string, check func(string) []string) {
	if name == "" {
		c.fault(field, "is required")
		return
	}
	for _, message := range check(name) {
		c.fault(field, "%q: %s", name, message)
	}
}

// reference is name for a reference to an object or a key. The API accepts any name for an optional reference.
func (c checker) reference(field, name string, optional *bool, check func(string) []string) {
	if name == "" || !isTrue(optional) {
		c.name(field, name, check)
	}
}

func oneOf[T ~string](c checker, field string, value T, allowed ...T) {
	for _, a := range allowed {
		if value == a {
			return
		}
	}
	c.fault(field, "%q is not one of %v", value, allowed)
}

// validate reports the faults for which the API server would refuse a defaulted pod, in the fields that Bulkhead uses.
func validate(pod *corev1.Pod, report func(field, message string)) {
	c := checker{report: report, pod: &pod.Spec}
	c.name("metadata.name", pod.Name, validation.IsDNS1123Subdomain)
	c.name("metadata.namespace", pod.Namespace, validation.IsDNS1123Label)
	c.labels("metadata.", pod.Labels)
	for key := range pod.Annotations {
		c.name("metadata.annotations", strings.ToLower(key), validation.IsQualifiedName)
		if annotations.Internal(key) {
			c.fault("metadata.annotations", "%q: the prefix %s is reserved", key, annotations.Prefix)
		}
		if name, is := strings.CutPrefix(key, annotations.Cache); is {
			c.cache(pod, key, name)
		}
		if name, is := strings.CutPrefix(key, annotations.Copy); is {
			c.copied(pod, key, name)
		}
		if name, is := strings.CutPrefix(key, annotations.Device); is {
			c.device(pod, key, name)
		}
		if name, is := strings.CutPrefix(key, annotations.User); is {
			c.user(pod, key, name)
		}
		if name, is := strings.CutPrefix(key, annotations.Ulimits); is {
			c.ulimits(pod, key, name)
		}
	}
	spec := &pod.Spec
	oneOf(c, "spec.restartPolicy", spec.RestartPolicy, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	c.identity(spec)
	c.podResources(spec)
	volumes := c.volumes(pod)
	c.podSecurity(spec.SecurityContext)
	if len(spec.Containers) == 0 {
		c.fault("spec.containers", "is required")
	}
	c.containers(spec, volumes)
	c.lifetime(spec)
}

func (c checker) container(container *corev1.Container, at string, volumes map[string]bool) {
	if container.Image == "" {
		c.fault(at+"image", "is required")
	} else if strings.TrimSpace(container.Image) != container.Image {
		c.fault(at+"image", "%q begins or ends with a space", container.Image)
	}
	oneOf(c, at+"imagePullPolicy", container.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	c.environment(container, at)
	c.resources(container.Resources, at+"resources.")
	c.resizePolicy(container.ResizePolicy, at)
	c.containerSecurity(container.SecurityContext, at)
	c.probes(container, at)
	c.mounts(container, at, volumes)
	c.devices(container, at)
}

// ports checks a container's ports. hostPorts are the pod's host ports so far.
func (c checker) ports(ports []corev1.ContainerPort, at string, hostPorts map[string]bool) {
	names := map[string]bool{}
	for i, port := range ports {
		at := fmt.Sprintf("%sports[%d].", at, i)
		if port.Name != "" {
			c.name(at+"name", port.Name, validation.IsValidPortName)
			if names[port.Name] {
				c.fault(at+"name", "%q appears twice", port.Name)
			}
			names[port.Name] = true
		}
		if port.ContainerPort < 1 || port.ContainerPort > 65535 {
			c.fault(at+"containerPort", "%d is not between 1 and 65535", port.ContainerPort)
		}
		oneOf(c, at+"protocol", port.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
		if port.HostIP != "" && net.ParseIP(port.HostIP) == nil {
			c.fault(at+"hostIP", "%q is not an IP address", port.HostIP)
		}
		if port.HostPort == 0 {
			continue
		}
		if port.HostPort < 0 || port.HostPort > 65535 {
			c.fault(at+"hostPort", "%d is not between 1 and 65535", port.HostPort)
		}
		if port.Protocol == corev1.ProtocolSCTP {
			c.fault(at+"hostPort", "only TCP and UDP ports can be published")
		}
		key := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort)
		if hostPorts[key] {
			c.fault(at+"hostPort", "%d appears twice", port.HostPort)
		}
		hostPorts[key] = true
	}
}
