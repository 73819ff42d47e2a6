package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/oci"
)

// capabilities applies the CRI's rules. Dropping ALL empties the set, and adding ALL fills it, before single names
// count. A name in both lists is dropped. A privileged process gets all capabilities.
func capabilities(security *runtimeapi.LinuxContainerSecurityContext) (*specs.LinuxCapabilities, error) {
	if security.GetPrivileged() {
		all := oci.AllCapabilities
		return &specs.LinuxCapabilities{Bounding: all(), Effective: all(), Permitted: all()}, nil
	}
	wish := security.GetCapabilities()
	add, err := names(wish.GetAddCapabilities())
	if err != nil {
		return nil, err
	}
	drop, err := names(wish.GetDropCapabilities())
	if err != nil {
		return nil, err
	}
	ambient, err := names(wish.GetAddAmbientCapabilities())
	if err != nil {
		return nil, err
	}
	have := oci.DefaultCapabilities()
	if slices.Contains(drop, "ALL") {
		have = nil
	}
	if slices.Contains(add, "ALL") {
		have = oci.AllCapabilities()
	}
	have = append(have, slices.Concat(add, ambient)...)
	have = slices.DeleteFunc(have, func(name string) bool { return name == "ALL" || slices.Contains(drop, name) })
	ambient = slices.DeleteFunc(ambient, func(name string) bool { return name == "ALL" || slices.Contains(drop, name) })
	slices.Sort(have)
	have = slices.Compact(have)
	if have == nil {
		have = []string{}
	}
	set := &specs.LinuxCapabilities{Bounding: have, Effective: slices.Clone(have), Permitted: slices.Clone(have)}
	if len(ambient) > 0 {
		// An ambient capability must be inheritable too.
		set.Ambient, set.Inheritable = ambient, slices.Clone(ambient)
	}
	return set, nil
}

// names returns the full upper-case names of capabilities, and rejects unknown ones.
func names(list []string) ([]string, error) {
	known := oci.AllCapabilities()
	var out []string
	for _, name := range list {
		full := strings.ToUpper(name)
		if full == "ALL" {
			out = append(out, full)
			continue
		}
		if !strings.HasPrefix(full, "CAP_") {
			full = "CAP_" + full
		}
		if !slices.Contains(known, full) {
			return nil, fmt.Errorf("%w: unknown capability %q", oci.ErrInvalid, name)
		}
		out = append(out, full)
	}
	return out, nil
}
