// Package logs sees to what a pod's containers have written on the host: that
// their logs stay small, and what they said last.
package logs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/pod/watch"
)

// A container that writes for ever must not fill the host's disk: as with a
// kubelet a log is begun anew when it has grown large, and what it was before is
// kept once. Size has no event, so it is looked at: seldom, and often while it grows.
const (
	// Bound is the size, in bytes, at which a log is begun anew.
	Bound      = 16 << 20
	seldomLook = 10 * time.Second
	oftenLook  = time.Second
)

// Older is where the beginning of a container's log is that has been begun
// anew; what came before that is gone.
func Older(path string) string { return path + ".1" }

// Rotator sees to the logs of a pod's running containers.
type Rotator struct {
	Runtime internalapi.RuntimeService
	// Current are the ids of the containers to look at. It is asked at each look,
	// from the goroutine of Run.
	Current func() []string
	// Unread tells of a log whether its older file, which goes when the log is begun anew, has still to
	// be read by somebody who is to miss nothing: then its container waits. Nil is never.
	Unread func(path string) bool
	Logger *slog.Logger

	sizes map[string]int64 // of the logs, by the containers' ids
}

// Run looks at the logs until ctx ends.
func (o *Rotator) Run(ctx context.Context) {
	for wait := seldomLook; ; {
		watch.Pause(ctx, wait)
		if ctx.Err() != nil {
			return
		}
		wait = seldomLook
		if o.look(ctx) {
			wait = oftenLook
		}
	}
}

// look looks at each log once, and tells whether one grows fast.
func (o *Rotator) look(ctx context.Context) (fast bool) {
	sizes := map[string]int64{}
	for _, id := range o.Current() {
		before, known := o.sizes[id]
		size, soon, err := o.one(ctx, id, !known)
		if err != nil && ctx.Err() == nil {
			o.Logger.Warn("cannot rotate a container's log", "container", id, "error", err)
		}
		sizes[id] = size
		fast = fast || soon || size-before > Bound/4
	}
	o.sizes = sizes
	return fast
}

// one begins a container's log anew if that is due, and else returns its size, and whether
// to look again soon. At the first look what another engine has left half done is done.
func (o *Rotator) one(ctx context.Context, id string, first bool) (size int64, soon bool, err error) {
	res, err := o.Runtime.ContainerStatus(ctx, id, false)
	if err != nil {
		return 0, false, err
	}
	path := res.GetStatus().GetLogPath()
	if path == "" || res.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return 0, false, nil
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.Size() >= Bound && o.Unread != nil && o.Unread(path):
		return info.Size(), true, nil
	case err == nil && info.Size() >= Bound:
		if err := os.Rename(path, Older(path)); err != nil {
			return info.Size(), false, err
		}
	case err == nil && (info.Size() > 0 || !first):
		return info.Size(), false, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return 0, false, err
	default:
		if _, err := os.Stat(Older(path)); err != nil {
			return 0, false, nil //nolint:nilerr // no rotation to complete
		}
	}
	if err := o.Runtime.ReopenContainerLog(ctx, id); err != nil {
		return 0, false, fmt.Errorf("reopen it after its rotation: %w", err)
	}
	return 0, true, nil
}
