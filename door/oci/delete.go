package oci

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	"github.com/bulkhead-project/bulkhead/internal/fault"
)

// delete removes an ended container from the engine, and then its record. It may be repeated.
func (d *Door) delete(ctx context.Context, r *record) error {
	var err error
	if r.Pod.Own {
		err = d.remove(ctx, r.Pod.Key, r.Pod.ID)
	} else {
		err = d.removeContainer(ctx, r)
	}
	if err != nil {
		return fmt.Errorf("delete container %s: %w", r.ID, err)
	}
	fault.Point("oci.removed")
	if err := r.leave(); err != nil {
		return fmt.Errorf("delete container %s: %w", r.ID, err)
	}
	if err := r.ungroup(ctx); err != nil {
		return fmt.Errorf("delete container %s: %w", r.ID, err)
	}
	fault.Point("oci.ungrouped")
	r.poststop(ctx, d.o.Logger)
	return os.RemoveAll(filepath.Join(d.o.Root, r.ID))
}

// removeContainer removes a container from a VM that lives on.
func (d *Door) removeContainer(ctx context.Context, r *record) error {
	if r.Container == "" {
		return nil
	}
	return d.ask(ctx, func(e enginev1.EngineClient) error {
		_, err := e.RemoveContainer(ctx, &enginev1.RemoveContainerRequest{Door: doorName, Id: r.Pod.ID, Container: r.Container})
		return err
	})
}
