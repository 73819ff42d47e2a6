package podapi

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
)

// environment checks the sources of a container's variables.
func (c checker) environment(container *corev1.Container, at string) {
	for i, env := range container.Env {
		c.env(env, fmt.Sprintf("%senv[%d].", at, i))
	}
	for i, from := range container.EnvFrom {
		at := fmt.Sprintf("%senvFrom[%d].", at, i)
		if from.Prefix != "" {
			c.name(at+"prefix", from.Prefix, validation.IsRelaxedEnvVarName)
		}
		switch {
		case from.ConfigMapRef != nil && from.SecretRef != nil:
			c.fault(at+"secretRef", "cannot be together with configMapRef")
		case from.ConfigMapRef != nil:
			c.name(at+"configMapRef.name", from.ConfigMapRef.Name, nameOrPrefix)
		case from.SecretRef != nil:
			c.name(at+"secretRef.name", from.SecretRef.Name, nameOrPrefix)
		default:
			c.fault(strings.TrimSuffix(at, "."), "names no source")
		}
	}
}

func (c checker) env(env corev1.EnvVar, at string) {
	c.name(at+"name", env.Name, validation.IsRelaxedEnvVarName)
	if strings.ContainsRune(env.Value, 0) {
		c.fault(at+"value", "holds a zero byte")
	}
	from := env.ValueFrom
	if from == nil {
		return
	}
	if env.Value != "" {
		c.fault(at+"valueFrom", "cannot be together with value")
	}
	at += "valueFrom."
	sources := 0
	if ref := from.FieldRef; ref != nil {
		sources++
		c.fieldRef(ref, at+"fieldRef.", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP",
			"status.podIPs")
		if ref.FieldPath == "metadata.labels" || ref.FieldPath == "metadata.annotations" {
			c.fault(at+"fieldRef.fieldPath", "%q is not a field for an environment variable; name one of its keys", ref.FieldPath)
		}
	}
	if ref := from.ResourceFieldRef; ref != nil {
		sources++
		c.resourceRef(ref, at+"resourceFieldRef.")
	}
	if ref := from.ConfigMapKeyRef; ref != nil {
		sources++
		c.keyRef(ref.Name, ref.Key, at+"configMapKeyRef.")
	}
	if ref := from.SecretKeyRef; ref != nil {
		sources++
		c.keyRef(ref.Name, ref.Key, at+"secretKeyRef.")
	}
	if from.FileKeyRef != nil {
		sources++ // which is refused separately
	}
	switch {
	case sources == 0:
		c.fault(strings.TrimSuffix(at, "."), "names no source")
	case sources > 1:
		c.fault(strings.TrimSuffix(at, "."), "names more than one source")
	}
}

func (c checker) keyRef(name, key, at string) {
	c.name(at+"name", name, validation.IsDNS1123Subdomain)
	c.name(at+"key", key, validation.IsConfigMapKey)
}

// fieldRef checks a reference to a field of the pod. more are fields beyond those allowed in volumes.
func (c checker) fieldRef(ref *corev1.ObjectFieldSelector, at string, more ...string) {
	field := ref.FieldPath
	switch field {
	case "":
		c.fault(at+"fieldPath", "is required")
		return
	case "metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations":
		return
	}
	if slices.Contains(more, field) {
		return
	}
	for _, prefix := range []string{"metadata.labels['", "metadata.annotations['"} {
		if key, found := strings.CutPrefix(field, prefix); found && strings.HasSuffix(key, "']") {
			key = strings.TrimSuffix(key, "']")
			if strings.HasPrefix(prefix, "metadata.annotations") {
				key = strings.ToLower(key) // the case of annotations is free
			}
			c.name(at+"fieldPath", key, validation.IsQualifiedName)
			return
		}
	}
	c.fault(at+"fieldPath", "%q is not a field that can be referred to here", field)
}

// divisors are the divisors that the API allows, by kind of resource.
var divisors = map[string][]string{
	"cpu":    {"0", "1m", "1"},
	"memory": {"0", "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"},
}

// resourceRef checks a reference to a container's limit or request.
func (c checker) resourceRef(ref *corev1.ResourceFieldSelector, at string) {
	list, name, _ := strings.Cut(ref.Resource, ".")
	kind := "memory"
	switch {
	case ref.Resource == "":
		c.fault(at+"resource", "is required")
		return
	case list != "limits" && list != "requests":
		kind = ""
	case name == "cpu":
		kind = "cpu"
	case name != "memory" && name != "ephemeral-storage" && !strings.HasPrefix(name, corev1.ResourceHugePagesPrefix):
		kind = ""
	}
	if kind == "" {
		c.fault(at+"resource", "%q is not a resource that can be referred to", ref.Resource)
		return
	}
	if divisor := ref.Divisor.String(); !slices.Contains(divisors[kind], divisor) {
		c.fault(at+"divisor", "%s is not one of %v", divisor, divisors[kind][1:])
	}
}

// nameOrPrefix checks a name that may end with a dash.
func nameOrPrefix(name string) []string { return apivalidation.NameIsDNSSubdomain(name, true) }
