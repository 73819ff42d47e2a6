package mounts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/internal/fault"
)

// Unmount undoes Mount, also of an earlier process and of a failed call. It succeeds if nothing is left. When ctx ends,
// the work continues, and a later call waits for its result.
func (m *Mounter) Unmount(ctx context.Context, uid types.UID, volume string) error {
	k := key{uid, volume}
	done := m.flights.DoChan(m.file(k), func() (any, error) {
		if !m.startWork() {
			return nil, errClosed
		}
		defer m.all.Done()
		return nil, m.unmount(m.ctx, k)
	})
	select {
	case got := <-done:
		return got.Err
	case <-ctx.Done():
		return fmt.Errorf("unmounting volume %s of pod %s: %w", volume, uid, context.Cause(ctx))
	}
}

// startWork counts background work for Close. It returns false after Close.
func (m *Mounter) startWork() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return false
	}
	m.all.Add(1)
	return true
}

func (m *Mounter) unmount(ctx context.Context, k key) error {
	done, err := m.locks.lock(ctx, m.file(k)) // a cancelled Mount may be about to write its first record
	if err != nil {
		return err
	}
	defer done()
	r := m.get(k)
	if r == nil {
		if err := m.damage(k); err != nil {
			return fmt.Errorf("cannot tell whether the volume is still mounted: %w; after checking, remove the file", err)
		}
		return nil
	}
	unlock, err := m.locks.lock(ctx, r.id())
	if err != nil {
		return err
	}
	defer unlock()
	r = m.get(k) // Tend may have changed it
	d := m.o.Driver(r.Driver)
	if d == nil && r.Phase > begun {
		return fmt.Errorf("driver name %s not found in the list of registered CSI drivers", r.Driver)
	}
	a := &attempt{m: m, r: r, driver: d}
	others := m.others(r)
	if err := a.unpublish(ctx, others); err != nil {
		return err
	}
	if err := a.unstage(ctx, others); err != nil {
		return err
	}
	m.tokens.forget(r.UID)
	return m.removeRecord(a.r)
}

// unpublish calls the driver to unmount the volume from the pod's path, unless the pod has the same volume under
// another name.
func (a *attempt) unpublish(ctx context.Context, others []*record) error {
	at := a.r.targetPath()
	for _, o := range others {
		if o.Phase >= publishing && o.targetPath() == at {
			return nil
		}
	}
	if a.r.Phase >= publishing {
		if err := a.step(func(r *record) { r.Phase = publishing }); err != nil { // from now on it may be unmounted
			return err
		}
		fault.Point("csi.unpublishing")
		_, err := a.driver.Node.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: a.r.Handle, TargetPath: at})
		if err != nil {
			return err
		}
		fault.Point("csi.unpublished")
	}
	if err := removeMountpoint(at); err != nil {
		return err
	}
	a.m.removeEmpty(a.r, filepath.Dir(at))
	if a.r.Phase < publishing {
		return nil
	}
	return a.step(func(r *record) { r.Phase, r.Owned = staged, false })
}

// unstage calls the driver to unstage the volume after the last pod. It fails while a damaged record may belong to
// another pod of the volume.
func (a *attempt) unstage(ctx context.Context, others []*record) error {
	if a.r.Inline || a.r.Phase < staging {
		return nil
	}
	at := a.r.stagePath()
	for _, o := range others {
		if o.Phase >= staging && o.stagePath() == at {
			return nil
		}
	}
	if a.driver.Facts.Stage {
		if err := a.m.checkDamaged(a.r); err != nil {
			return err
		}
		if err := a.step(func(r *record) { r.Phase, r.Staged = staging, false }); err != nil { // from now on it may be unstaged
			return err
		}
		fault.Point("csi.unstaging")
		_, err := a.driver.Node.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: a.r.Handle, StagingTargetPath: at})
		if err != nil {
			return err
		}
		fault.Point("csi.unstaged")
	}
	if err := removeMountpoint(at); err != nil {
		return err
	}
	a.m.removeEmpty(a.r, filepath.Dir(at))
	return nil
}

// removeMountpoint removes the empty directory or file that a driver may have left as a mount point. It fails if the
// path is still mounted or not empty.
func removeMountpoint(at string) error {
	is, err := mounted(at)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("check whether %s is unmounted: %w", at, err)
	case is:
		return fmt.Errorf("the driver reports that %s is unmounted, but it is still mounted", at)
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the mount point: %w", err)
	}
	return nil
}

// removeEmpty removes empty directories of volumes, from dir upwards to the shared ones. The lock keeps new volumes
// from being created in them meanwhile.
func (m *Mounter) removeEmpty(r *record, dir string) {
	m.tree.Lock()
	defer m.tree.Unlock()
	for dir != r.plugin() && dir != filepath.Join(r.Root, "pods") && dir != filepath.Clean(r.Root) && os.Remove(dir) == nil {
		dir = filepath.Dir(dir)
	}
}

// makeDirs creates a directory of a volume, unless it is already a mount point.
func (m *Mounter) makeDirs(dir string) error {
	if is, _ := mounted(dir); is {
		return nil
	}
	m.tree.Lock()
	defer m.tree.Unlock()
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("create the directory of a volume: %w", err)
	}
	return nil
}
