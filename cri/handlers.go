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

// The handlers that there are without configuration. A pod that names none gets
// RuntimeHandler's VM; one of ColdHandler is booted and not cloned.
const (
	RuntimeHandler = "bulkhead"
	ColdHandler    = "bulkhead-cold"
)

// Handler is how the VMs are made of pods that name it.
type Handler struct {
	// Cold, NoFork and Accel are as those of runtimev1.PodOptions.
	Cold, NoFork bool
	Accel        string
}

// handlers are those of a service: the built-in ones, of which more may be others.
func handlers(more map[string]Handler) map[string]Handler {
	all := map[string]Handler{RuntimeHandler: {}, ColdHandler: {Cold: true}}
	maps.Copy(all, more)
	return all
}

// handled are the options of a pod that names a handler. What the pod asks for itself
// stays.
func (s *Service) handled(name string, o runtimev1.PodOptions) (runtimev1.PodOptions, error) {
	h, ok := s.handlers[cmp.Or(name, RuntimeHandler)]
	if !ok {
		known := slices.Sorted(maps.Keys(s.handlers))
		return o, failure.Invalid("unknown runtime handler %q (known: %s)", name, strings.Join(known, ", "))
	}
	o.Cold, o.NoFork, o.Accel = o.Cold || h.Cold, o.NoFork || h.NoFork, cmp.Or(o.Accel, h.Accel)
	return o, nil
}

// advertised are the handlers as clients see them. All run the same guest, which can
// make mounts read-only recursively, and makes no user namespaces.
func (s *Service) advertised() (all []*runtimeapi.RuntimeHandler) {
	for _, name := range append([]string{""}, slices.Sorted(maps.Keys(s.handlers))...) {
		all = append(all, &runtimeapi.RuntimeHandler{
			Name: name, Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true},
		})
	}
	return all
}
