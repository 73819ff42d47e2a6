// Package setup parses the settings that all doors share.
package setup

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bulkhead-project/bulkhead/engine"
)

// Warm parses BULKHEAD_WARM:
//
//	on, or empty    VMs are forks of warm VMs
//	off             no VM is kept warm
//	namespace       as on, but namespaces do not share warm VMs
//	label=KEY       as on, but pods share warm VMs only with pods that have the same
//	                value of that label; a missing label counts as empty
//
// tenant is nil if all pods share warm VMs.
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
		return false, nil, fmt.Errorf("%q must be on, off, namespace or label=KEY", text)
	}
	if len(validation.IsQualifiedName(key)) > 0 {
		return false, nil, fmt.Errorf("%q must be a label name", key)
	}
	return false, func(who engine.Identity) string { return who.Labels[key] }, nil
}
