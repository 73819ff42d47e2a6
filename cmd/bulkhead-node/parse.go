package main

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// labels parses KEY=VALUE.
func labels(texts []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if !ok || len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return nil, fmt.Errorf("node-label %q must be KEY=VALUE", text)
		}
		out[key] = value
	}
	return out, nil
}

// taints parses KEY=VALUE:EFFECT.
func taints(texts []string) (out []corev1.Taint, err error) {
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	for _, text := range texts {
		rest, effect, ok := strings.Cut(text, ":")
		key, value, _ := strings.Cut(rest, "=")
		if !ok || !slices.Contains(effects, corev1.TaintEffect(effect)) || len(validation.IsQualifiedName(key)) > 0 ||
			len(validation.IsValidLabelValue(value)) > 0 {
			return nil, fmt.Errorf("register-with-taint %q must be KEY=VALUE:EFFECT", text)
		}
		out = append(out, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return out, nil
}

// reserved parses RESOURCE=QUANTITY.
func reserved(texts []string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for _, text := range texts {
		name, amount, _ := strings.Cut(text, "=")
		q, err := resource.ParseQuantity(amount)
		known := slices.Contains([]string{"cpu", "memory", "ephemeral-storage"}, name)
		if err != nil || q.Sign() < 0 || !known {
			return nil, fmt.Errorf("reserve %q must be cpu=, memory= or ephemeral-storage= with a quantity", text)
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}
