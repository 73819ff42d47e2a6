package cri

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
)

// The built-in handlers. A pod without a handler gets RuntimeHandler. ColdHandler boots a VM instead of cloning one.
const (
	RuntimeHandler = "bulkhead"
	ColdHandler    = "bulkhead-cold"
)

// Handler defines how the VMs of its pods are made.
type Handler struct {
	// Cold, NoFork and Accel are the fields of runtimev1.PodOptions.
	Cold, NoFork bool
	Accel        string
}

// handlers are the handlers by name.
type handlers map[string]Handler

// withBuiltIn returns the built-in handlers, which more may extend or replace.
func withBuiltIn(more map[string]Handler) handlers {
	all := handlers{RuntimeHandler: {}, ColdHandler: {Cold: true}}
	maps.Copy(all, more)
	return all
}

// options returns the options of a pod with a handler. The pod's own options take precedence.
func (all handlers) options(name string, o runtimev1.PodOptions) (runtimev1.PodOptions, error) {
	h, ok := all[cmp.Or(name, RuntimeHandler)]
	if !ok {
		known := slices.Sorted(maps.Keys(all))
		return o, failure.Invalid("unknown runtime handler %q (known: %s)", name, strings.Join(known, ", "))
	}
	o.Cold, o.NoFork, o.Accel = o.Cold || h.Cold, o.NoFork || h.NoFork, cmp.Or(o.Accel, h.Accel)
	return o, nil
}

// advertised returns the handlers for clients. All run the same guest, which supports recursive read-only mounts, but
// no user namespaces.
func (all handlers) advertised() (list []*runtimeapi.RuntimeHandler) {
	for _, name := range append([]string{""}, slices.Sorted(maps.Keys(all))...) {
		list = append(list, &runtimeapi.RuntimeHandler{
			Name: name, Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true},
		})
	}
	return list
}
