package spec

import (
	"github.com/opencontainers/runtime-spec/specs-go"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// whole returns a container's specification with all its mounts.
func whole(in Input) (*specs.Spec, error) {
	spec, mounts, err := Container(in)
	for _, m := range mounts {
		spec.Mounts = append(spec.Mounts, encode(m))
	}
	return spec, err
}

// encode returns a mount in the form of an OCI specification.
func encode(m containerv1.Mount) specs.Mount {
	kind, source, options := m.Encode()
	return specs.Mount{Destination: m.Destination, Type: kind, Source: source, Options: options}
}
