package claims

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/retry"
	"github.com/bulkhead-project/bulkhead/volume"
)

// Volumes are the volumes of one pod. It implements volume.Claims.
type Volumes struct {
	k   *Keeper
	pod *corev1.Pod // has only its UID if the pod's record is damaged
	dir string

	op chan struct{} // held while volumes are mounted or unmounted

	mu        sync.Mutex
	records   map[string]record
	unread    error // why the records of an earlier process cannot be read
	releasing bool
}

var _ volume.Claims = (*Volumes)(nil)

// Places implements volume.Claims.
func (v *Volumes) Places() map[string]Place {
	places := map[string]Place{}
	for name, r := range v.known() {
		if r.Place != nil {
			places[name] = *r.Place
		}
	}
	return places
}

// Changed implements volume.Claims.
func (v *Volumes) Changed() <-chan struct{} { return v.k.changed.Next() }

// Mount implements volume.Claims.
func (v *Volumes) Mount(ctx context.Context, pod *corev1.Pod) (map[string]Place, error) {
	done, err := v.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var failed, why []string
	var errs []error
	for i := range pod.Spec.Volumes {
		one := &pod.Spec.Volumes[i]
		if !volume.Claimed(&one.VolumeSource) || !used(pod, one.Name) { // unused volumes are not mounted, as with a kubelet
			continue
		}
		if err := v.mount(ctx, pod, one); err != nil {
			failed, why, errs = append(failed, one.Name), append(why, err.Error()), append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, &mountError{fmt.Sprintf("Unable to attach or mount volumes: unmounted volumes=[%s]: %s",
			strings.Join(failed, " "), strings.Join(why, "; ")), errors.Join(errs...)}
	}
	return v.Places(), nil
}

// mountError names the failed volumes in one line and matches their errors.
type mountError struct {
	text string
	error
}

func (e *mountError) Error() string { return e.text }

// Unwrap returns the errors of all volumes.
func (e *mountError) Unwrap() error { return e.error }

// lock waits until no other call mounts or unmounts, and reads the records if that failed before. The caller calls
// done.
func (v *Volumes) lock(ctx context.Context) (done func(), err error) {
	select {
	case v.op <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("the pod's volumes are being mounted or unmounted: %w", ctx.Err())
	}
	done = func() { <-v.op }
	if v.readError() != nil {
		if err := v.read(); v.readError() != nil {
			done()
			return nil, err
		}
		if len(v.known()) == 0 {
			v.k.drop(v)
		}
	}
	return done, nil
}

// readError returns why the records could not be read, or nil.
func (v *Volumes) readError() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.unread
}

// mount mounts one volume. It writes the record first.
func (v *Volumes) mount(ctx context.Context, pod *corev1.Pod, one *corev1.Volume) error {
	before, there := v.known()[one.Name]
	r := before
	if before.Place == nil {
		next, err := v.resolve(ctx, pod, one)
		if err != nil {
			return err
		}
		if there && (before.damaged || !sameVolume(before, next)) {
			// An earlier try had another volume under this name.
			if err := v.unmount(ctx, one.Name); err != nil {
				return err
			}
		}
		if r = next; r.ofDriver() && v.k.o.CSI == nil {
			return fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", one.Name, errNoDrivers)
		}
		if err := v.k.assign(v, one.Name, r); err != nil {
			return fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", one.Name, err)
		}
	}
	fault.Point("claims.recorded")
	place, err := v.place(ctx, one.Name, r)
	if err != nil {
		return fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", one.Name, err)
	}
	fault.Point("claims.mounted")
	if r.Place != nil && *r.Place == place {
		return nil
	}
	r.Place = &place
	return v.save(one.Name, r)
}

func sameVolume(a, b record) bool {
	return (a.PV == nil) == (b.PV == nil) && (a.PV == nil || a.PV.UID == b.PV.UID)
}

// Unmount implements volume.Claims.
func (v *Volumes) Unmount(ctx context.Context) error {
	done, err := v.lock(ctx)
	if err != nil {
		return err
	}
	defer done()
	var errs []error
	for name := range v.known() {
		errs = append(errs, v.unmount(ctx, name))
	}
	return errors.Join(errs...)
}

// unmount unmounts one volume, then removes its record.
func (v *Volumes) unmount(ctx context.Context, name string) error {
	r, err := v.known()[name], error(nil)
	switch {
	case !r.damaged && !r.ofDriver(): // a place without a mount
	case v.k.o.CSI != nil:
		err = v.k.o.CSI.Unmount(ctx, v.pod.UID, name)
	case r.ofDriver(): // an earlier process had drivers
		err = errNoDrivers
	}
	if err != nil {
		return fmt.Errorf("UnmountVolume.TearDown failed for volume %q : %w", name, err)
	}
	fault.Point("claims.unmounted")
	if err := v.erase(name); err != nil {
		return err
	}
	v.k.Changed() // another pod may wait for the volume
	return nil
}

// pauses are the pauses between tries to unmount. tryTimeout limits one try.
var pauses = retry.Pauses{First: time.Second, Last: time.Minute}

const tryTimeout = time.Minute

// Release implements volume.Claims.
func (v *Volumes) Release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.releasing {
		return
	}
	v.releasing = v.k.background(func() {
		v.release(v.k.ctx)
		v.mu.Lock()
		v.releasing = false
		v.mu.Unlock()
	})
}

// release retries until the volumes are unmounted or ctx ends.
func (v *Volumes) release(ctx context.Context) {
	// Changed ends a pause, because a driver may have come back. Only the keeper's end ends this without success.
	_ = pauses.Until(ctx, v.Changed, func() error {
		ctx, cancel := context.WithTimeout(ctx, tryTimeout)
		defer cancel()
		return v.Unmount(ctx)
	}, func(err error) {
		v.k.o.Logger.Warn("unmounting a pod's volumes failed, retrying", "pod", v.pod.Namespace+"/"+v.pod.Name, "uid", v.pod.UID, "error", err)
	})
}
