package mounts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/claims"
	"github.com/bulkhead-project/bulkhead/internal/fault"
)

// attempt is one attempt to mount a volume.
type attempt struct {
	m      *Mounter
	r      *record // as it is on disk; replaced with each step
	driver *Driver
	rules  storagev1.CSIDriverSpec
	public map[string]string // metadata of the attacher
}

// Mount mounts a volume and returns its place. It does nothing for a mounted volume. The errors are worded as a
// kubelet's. After a failure the finished steps stay, until Unmount undoes them. If ctx ends during a call to the
// driver, the call continues and Unmount waits for it, but no further step starts.
func (m *Mounter) Mount(ctx context.Context, q claims.Request) (claims.Place, error) {
	next, err := recordOf(q)
	if err != nil {
		return claims.Place{}, err
	}
	type result struct {
		claims.Place
		error
	}
	if !m.startWork() {
		return claims.Place{}, errClosed
	}
	done := make(chan result, 1)
	go func() { // Close waits for it
		defer m.all.Done()
		place, err := m.mount(ctx, next)
		done <- result{place, err}
	}()
	select {
	case got := <-done:
		return got.Place, got.error
	case <-ctx.Done():
		return claims.Place{}, fmt.Errorf("mounting volume %s: %w", next.Spec, context.Cause(ctx))
	}
}

// errClosed is returned for calls after Close.
var errClosed = errors.New("the node is stopping")

func (m *Mounter) mount(ctx context.Context, next *record) (claims.Place, error) {
	done, err := m.locks.lock(ctx, m.file(next.key()))
	if err != nil {
		return claims.Place{}, err
	}
	defer done()
	if err := ctx.Err(); err != nil { // after Unmount, no later call would undo the mount
		return claims.Place{}, err
	}
	unlock, err := m.locks.lock(ctx, next.id())
	if err != nil {
		return claims.Place{}, err
	}
	defer unlock()
	next.Root = m.rootOf(next)
	switch before := m.get(next.key()); {
	case before != nil && !before.same(next):
		return claims.Place{}, fmt.Errorf("volume %s of the pod is still %s, which must be unmounted first", before.Volume, before.id())
	case before != nil:
		next.Attach, next.Phase, next.Staged, next.Owned = before.Attach, before.Phase, before.Staged, before.Owned
		if before.Phase == published {
			next.ReadOnly = before.ReadOnly
		}
	case m.damage(next.key()) != nil:
		next.Phase = publishing // the finished steps are unknown, so Unmount must undo all
	}
	a := &attempt{m: m, r: next}
	if err := a.run(ctx); err != nil {
		return claims.Place{}, err
	}
	return claims.Place{Path: a.r.targetPath(), Block: a.r.Block, ReadOnly: a.r.ReadOnly}, nil
}

// rootOf returns the root directory for a volume's mounts. A volume of another pod keeps that pod's root, because a
// driver stages a volume at one path. A mounted volume keeps its own.
func (m *Mounter) rootOf(r *record) string {
	if before := m.get(r.key()); before != nil {
		return before.Root
	}
	if others := m.others(r); len(others) > 0 {
		return others[0].Root
	}
	return m.o.Root
}

// run does the missing steps. For a mounted volume it calls neither the API server nor the driver.
func (a *attempt) run(ctx context.Context) (err error) {
	if a.r.Phase == published && (a.r.Owned || a.r.Group == nil) && a.mounted() {
		return nil
	}
	if a.driver = a.m.o.Driver(a.r.Driver); a.driver == nil {
		return fmt.Errorf("driver name %s not found in the list of registered CSI drivers", a.r.Driver)
	}
	if a.rules, err = a.m.rules(ctx, a.r.Driver); err != nil {
		return err
	}
	if err := a.checkLifecycle(); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{a.attach, a.stage, a.publish, a.applyGroup} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := a.expand(ctx); err != nil { // the pod gets the volume as it is, and Tend retries
		a.m.o.Logger.Warn("expanding a CSI volume failed", "pod", a.r.Namespace+"/"+a.r.Pod, "volume", a.r.Volume, "error", err)
	}
	return nil
}

// rules returns the CSIDriver's specification, or a kubelet's defaults if there is no CSIDriver.
func (m *Mounter) rules(ctx context.Context, name string) (storagev1.CSIDriverSpec, error) {
	got, err := m.o.Client.StorageV1().CSIDrivers().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return storagev1.CSIDriverSpec{}, nil
	}
	if err != nil {
		return storagev1.CSIDriverSpec{}, fmt.Errorf("get the CSIDriver %s: %w", name, err)
	}
	return got.Spec, nil
}

// checkLifecycle returns an error if the driver does not support the volume's lifecycle mode.
func (a *attempt) checkLifecycle() error {
	mode := storagev1.VolumeLifecyclePersistent
	if a.r.Inline {
		mode = storagev1.VolumeLifecycleEphemeral
	}
	if len(a.rules.VolumeLifecycleModes) == 0 && mode == storagev1.VolumeLifecyclePersistent {
		return nil
	}
	for _, one := range a.rules.VolumeLifecycleModes {
		if one == mode {
			return nil
		}
	}
	return fmt.Errorf("volume mode %q not supported by driver %s (supported modes: %q)", mode, a.r.Driver, a.rules.VolumeLifecycleModes)
}

// mounted reports whether a published volume is still mounted.
func (a *attempt) mounted() bool {
	path := a.r.targetPath()
	if a.r.Block {
		info, err := os.Stat(path)
		return err == nil && info.Mode()&os.ModeDevice != 0
	}
	is, err := mounted(path)
	return err == nil && is
}

// step changes the record and writes it.
func (a *attempt) step(change func(*record)) error {
	next := *a.r
	change(&next)
	if err := a.m.save(&next); err != nil {
		return err
	}
	a.r = &next
	return nil
}

// attach waits until the volume is attached to the node, unless the driver needs no attachment. The record first marks
// the volume as in use, which keeps it from being detached.
func (a *attempt) attach(ctx context.Context) (err error) {
	needs := !a.r.Inline && (a.rules.AttachRequired == nil || *a.rules.AttachRequired)
	if err := a.step(func(r *record) { r.Attach = needs }); err != nil || !needs {
		return err
	}
	a.public, err = a.m.o.Attached(ctx, a.r.Driver, a.r.Handle)
	return err
}

// stage calls the driver to stage the volume. A new pod shares a staged volume. Before each further attempt to publish
// it, the driver is called again, which is cheap for it. Otherwise a driver might publish an unstaged volume, and the
// pod would write to the host's disk. A check of the path cannot tell, because drivers may mount elsewhere.
func (a *attempt) stage(ctx context.Context) error {
	if !a.driver.Facts.Stage || a.r.Inline || a.r.Phase == published && a.mounted() {
		return nil
	}
	if a.r.Phase == begun && a.sharesStaged() {
		return a.step(func(r *record) { r.Phase, r.Staged = staged, true })
	}
	secrets, err := a.m.secrets(ctx, a.r.StageSecret)
	if err != nil {
		return err
	}
	if err := a.step(func(r *record) { r.Phase, r.Staged = max(r.Phase, staging), false }); err != nil {
		return err
	}
	at := a.r.stagePath()
	if err := a.m.makeDirs(at); err != nil {
		return err
	}
	fault.Point("csi.staging")
	_, err = a.driver.Node.NodeStageVolume(a.m.ctx, &csi.NodeStageVolumeRequest{
		VolumeId: a.r.Handle, PublishContext: a.public, StagingTargetPath: at, VolumeCapability: a.capability(),
		Secrets: secrets, VolumeContext: a.r.Attributes,
	})
	fault.Point("csi.staged")
	if err != nil {
		return err
	}
	return a.step(func(r *record) { r.Phase, r.Staged = max(r.Phase, staged), true })
}

// sharesStaged reports whether the volume is staged for other pods, in this boot and for all of them.
func (a *attempt) sharesStaged() (is bool) {
	for _, o := range a.m.others(a.r) {
		switch {
		case o.Phase < staging || o.stagePath() != a.r.stagePath():
		case !o.Staged:
			return false
		default:
			is = true
		}
	}
	return is
}

// publish calls the driver to mount the volume for the pod. If the pod has the volume under two names, it is mounted
// once, as the first name requires.
func (a *attempt) publish(ctx context.Context) error {
	if o := a.sameTarget(); o != nil && a.mounted() {
		return a.step(func(r *record) { r.Phase, r.ReadOnly, r.Owned = published, o.ReadOnly, r.Owned || o.Owned })
	}
	at := a.r.targetPath()
	if err := a.m.makeDirs(filepath.Dir(at)); err != nil {
		return err
	}
	request, err := a.request(ctx)
	if err != nil {
		return err
	}
	if a.r.Phase < publishing {
		if err := a.step(func(r *record) { r.Phase = publishing }); err != nil {
			return err
		}
	}
	fault.Point("csi.publishing")
	_, err = a.driver.Node.NodePublishVolume(a.m.ctx, request)
	fault.Point("csi.published")
	if err != nil {
		return err
	}
	return a.step(func(r *record) { r.Phase = published })
}

// sameTarget returns a record of the same volume that is published at the same path, or nil.
func (a *attempt) sameTarget() *record {
	for _, o := range a.m.others(a.r) {
		if o.Phase == published && o.targetPath() == a.r.targetPath() {
			return o
		}
	}
	return nil
}
