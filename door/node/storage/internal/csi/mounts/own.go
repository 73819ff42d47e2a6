package mounts

import (
	"context"
	"errors"
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/bulkhead-project/bulkhead/internal/guesttree"
)

// ownWait limits how long the files of a volume may take to get a group. A pod may have created any number of files.
const ownWait = 3 * time.Minute

// applyGroup applies the pod's fsGroup to the volume's files if the node is responsible for that, once for each pod.
func (a *attempt) applyGroup(ctx context.Context) error {
	owned := func(r *record) { r.Owned = true }
	switch {
	case a.r.Group == nil || a.r.Owned:
		return nil
	case !a.appliesGroup():
		return a.step(owned)
	}
	within, cancel := context.WithTimeout(ctx, ownWait)
	defer cancel()
	chown := guesttree.Chown
	if a.r.Always {
		chown = guesttree.ChownAlways
	}
	err := chown(within, a.r.targetPath(), int(*a.r.Group))
	switch {
	case errors.Is(err, guesttree.ErrBounds), errors.Is(err, guesttree.ErrKept): // the pod continues, as with a kubelet
		a.m.o.Logger.Warn("some files of a volume keep their group", "volume", a.r.Spec, "group", *a.r.Group, "error", err)
	case err != nil:
		return fmt.Errorf("applying fsGroup %d to volume %s: %w", *a.r.Group, a.r.Spec, err)
	}
	return a.step(owned)
}

// appliesGroup reports whether the node applies the fsGroup. It follows the driver's policy, as a kubelet does.
func (a *attempt) appliesGroup() bool {
	r := a.r
	if r.Group == nil || r.ReadOnly || r.Block || a.driver.Facts.Group {
		return false
	}
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if a.rules.FSGroupPolicy != nil && *a.rules.FSGroupPolicy != "" {
		policy = *a.rules.FSGroupPolicy
	}
	switch policy {
	case storagev1.NoneFSGroupPolicy:
		return false
	case storagev1.FileFSGroupPolicy:
		return true
	case storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy:
	}
	return r.FSType != "" && r.Once
}
