// Package setup reads the settings that the programs of doors have in common.
package setup

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bulkhead-project/bulkhead/engine"
)

// Warm reads BULKHEAD_WARM:
//
//	on, or empty    pods' VMs are forks of warm ones
//	off             no VM is kept warm
//	namespace       as on, and pods of different namespaces are no forks of the same VM
//	label=KEY       as on, and pods with different values of that label are none; those
//	                without the label are as those whose value is empty
//
// tenant is nil where pods are not told apart.
func Warm(text string) (noForks bool, tenant func(engine.Identity) string, err error) {
	switch text {
	case "", "on":
		return false, nil, nil
	case "off":
		return true, nil, nil
	case "namespace":
		return false, func(who engine.Identity) string { return who.Namespace }, nil
	}
	key, ok := strings.CutPrefix(text, "label=")
	if !ok {
		return false, nil, fmt.Errorf("%q is none of on, off, namespace and label=KEY", text)
	}
	if len(validation.IsQualifiedName(key)) > 0 {
		return false, nil, fmt.Errorf("%q is no label's name", key)
	}
	return false, func(who engine.Identity) string { return who.Labels[key] }, nil
}
