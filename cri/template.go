package cri

import (
	"context"
	"fmt"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// EnsureTemplate builds the template of the machines of pods that state no
// memory, with so many virtual CPUs, an accelerator and a kind of network, unless
// it is there, and returns its key.
func (s *Service) EnsureTemplate(ctx context.Context, vcpus int, accel hypervisor.Accel, kind network.Kind) (string, error) {
	if kind == "" {
		kind = s.o.DefaultNetwork
	}
	p, err := s.provider(kind)
	if err != nil {
		return "", fmt.Errorf("build a template: %w", err)
	}
	size, err := sizing.SizeOf(nil, s.host, s.sizing())
	if err != nil {
		return "", fmt.Errorf("build a template: %w", err)
	}
	m, _, err := s.machineFor(ctx, vcpus, size.MemoryMiB, accel, p)
	if err != nil {
		return "", fmt.Errorf("build a template: %w", err)
	}
	t, err := s.machines.Template(ctx, m, nil)
	if err != nil {
		return "", fmt.Errorf("build a template: %w", err)
	}
	return t.key, nil
}
