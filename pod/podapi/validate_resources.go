package podapi

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// resources checks the resources of a container or of the pod itself.
func (c checker) resources(r corev1.ResourceRequirements, at string) {
	huge, plain := false, false
	for name, quantity := range r.Limits {
		if quantity.Sign() < 0 {
			c.fault(at+"limits."+string(name), "%s is negative", quantity.String())
		}
		if isHuge(name) {
			huge = true
			c.hugePages(name, quantity, r.Requests, at)
		}
	}
	for name, quantity := range r.Requests {
		limit, limited := r.Limits[name]
		switch {
		case quantity.Sign() < 0:
			c.fault(at+"requests."+string(name), "%s is negative", quantity.String())
		case limited && quantity.Cmp(limit) > 0:
			c.fault(at+"requests."+string(name), "%s is more than the limit %s", quantity.String(), limit.String())
		case isHuge(name) && !limited:
			c.fault(at+"limits."+string(name), "must be set, as huge pages are requested")
		}
		plain = plain || name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}
	if huge && !plain {
		c.fault(strings.TrimSuffix(at, "."), "huge pages require cpu or memory")
	}
}

func isHuge(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// hugePages checks huge pages, which cannot be overcommitted or split.
func (c checker) hugePages(name corev1.ResourceName, limit resource.Quantity, requests corev1.ResourceList, at string) {
	if request, set := requests[name]; set && request.Cmp(limit) != 0 {
		c.fault(at+"requests."+string(name), "%s must equal the limit %s", request.String(), limit.String())
	}
	size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	if err == nil && size.Sign() > 0 && limit.Value()%size.Value() != 0 {
		c.fault(at+"limits."+string(name), "%s is not a multiple of the page size %s", limit.String(), size.String())
	}
}

// podResources checks the pod's own resources against its containers'.
func (c checker) podResources(spec *corev1.PodSpec) {
	for name, quantity := range spec.Overhead {
		if quantity.Sign() < 0 {
			c.fault("spec.overhead."+string(name), "%s is negative", quantity.String())
		}
	}
	own := spec.Resources
	if own == nil {
		return
	}
	c.resources(*own, "spec.resources.")
	for name, request := range own.Requests {
		sum := resource.Quantity{}
		for i := range spec.Containers {
			sum.Add(spec.Containers[i].Resources.Requests[name])
		}
		if request.Cmp(sum) < 0 {
			c.fault("spec.resources.requests."+string(name), "must be greater than or equal to the aggregate container requests of %s", sum.String())
		}
	}
	for _, list := range []struct {
		field      string
		containers []corev1.Container
	}{{"spec.initContainers", spec.InitContainers}, {"spec.containers", spec.Containers}} {
		for i := range list.containers {
			for name, limit := range list.containers[i].Resources.Limits {
				if most, set := own.Limits[name]; set && limit.Cmp(most) > 0 {
					c.fault(fmt.Sprintf("%s[%d].resources.limits.%s", list.field, i, name), "must be less than or equal to the pod's limit of %s",
						most.String())
				}
			}
		}
	}
}

// resizePolicy checks a container's resize policies.
func (c checker) resizePolicy(policies []corev1.ContainerResizePolicy, at string) {
	names := map[corev1.ResourceName]bool{}
	for i, policy := range policies {
		at := fmt.Sprintf("%sresizePolicy[%d].", at, i)
		oneOf(c, at+"resourceName", policy.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)
		oneOf(c, at+"restartPolicy", policy.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)
		if names[policy.ResourceName] {
			c.fault(at+"resourceName", "%q appears twice", policy.ResourceName)
		}
		names[policy.ResourceName] = true
		if c.pod.RestartPolicy == corev1.RestartPolicyNever && policy.RestartPolicy == corev1.RestartContainer {
			c.fault(at+"restartPolicy", "must be NotRequired when the pod's restartPolicy is Never")
		}
	}
}
