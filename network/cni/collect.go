package cni

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// Collect releases addresses that belong to no pod. It detaches the recorded pods that do not exist. Then it makes the
// plugins of the present configuration free everything without a recorded pod (the verb GC, from CNI 1.1.0 on). No
// plugin works on a pod meanwhile. As with every runtime, a network of that version must belong to this instance alone,
// unless its configuration has disableGC.
func (p *Provider) Collect(ctx context.Context, exists func(id string) bool) error {
	recorded, err := p.recorded()
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range recorded {
		if !exists(id) {
			errs = append(errs, p.Detach(ctx, id))
		}
	}
	return errors.Join(append(errs, p.collect(ctx))...)
}

func (p *Provider) collect(ctx context.Context) error {
	if !p.working.TryLock() {
		return errclass.New(errdefs.ErrUnavailable, "the network plugins are at work")
	}
	defer p.working.Unlock()
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	list, err := p.load()
	if err != nil {
		return nil // Status reports it, and there is no plugin to ask
	}
	recorded, err := p.recorded()
	if err != nil {
		return err
	}
	valid := []types.GCAttachment{}
	for _, id := range recorded {
		valid = append(valid, types.GCAttachment{ContainerID: id, IfName: ifName})
	}
	if err := p.cni.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
		return fmt.Errorf("collect in network %s: %w", list.Name, err)
	}
	return nil
}

// recorded returns the ids of pods that are attached, or may be.
func (p *Provider) recorded() (ids []string, err error) {
	files, err := filepath.Glob(filepath.Join(p.o.Dir, "*.json"))
	for _, file := range files {
		ids = append(ids, strings.TrimSuffix(filepath.Base(file), ".json"))
	}
	return ids, err
}
