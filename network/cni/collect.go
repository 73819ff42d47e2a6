package cni

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

// ErrBusy is matched while plugins are at work on pods, when nothing can be collected.
var ErrBusy = errors.New("the network plugins are at work")

// Collect gives back what no pod has: it detaches the recorded pods that exists denies, and has
// the plugins of the present configuration free what is not of a recorded pod (the verb GC,
// from version 1.1.0 of CNI on). No plugin works on a pod meanwhile. As with every
// runtime, a network of that version is this instance's alone, unless its configuration says
// disableGC.
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
		return ErrBusy
	}
	defer p.working.Unlock()
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	list, err := p.load()
	if err != nil {
		return nil // Status tells of it, and nobody can be asked
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

// recorded are the ids of pods that are attached, or may be.
func (p *Provider) recorded() (ids []string, err error) {
	files, err := filepath.Glob(filepath.Join(p.o.Dir, "*.json"))
	for _, file := range files {
		ids = append(ids, strings.TrimSuffix(filepath.Base(file), ".json"))
	}
	return ids, err
}
