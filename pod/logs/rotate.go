// Package logs limits the size of the logs of a pod's containers, and reads their last words.
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

	"github.com/bulkhead-project/bulkhead/internal/retry"
)

// A container that writes for ever must not fill the host's disk. As with a kubelet, a large log is rotated, and one
// older file is kept. No event reports a log's size, so it is polled: rarely, and often while the log grows.
const (
	// Bound is the size, in bytes, at which a log is rotated.
	Bound      = 16 << 20
	seldomLook = 10 * time.Second
	oftenLook  = time.Second
)

// Older returns the path of the older file of a rotated log. Everything before that file is lost.
func Older(path string) string { return path + ".1" }

// Rotator rotates the logs of a pod's running containers.
type Rotator struct {
	Runtime internalapi.RuntimeService
	// Current returns the ids of the containers to check. It is called before each check, on the goroutine of Run.
	Current func() []string
	// Unread reports whether a reader that must not miss data still needs the older file of a log, which a rotation
	// deletes. The container then waits. Nil means never.
	Unread func(path string) bool
	Logger *slog.Logger

	sizes map[string]int64 // of the logs, by container id
}

// Run checks the logs until ctx ends.
func (o *Rotator) Run(ctx context.Context) {
	for wait := seldomLook; ; {
		if !retry.Sleep(ctx, wait, nil) {
			return
		}
		wait = seldomLook
		if o.checkAll(ctx) {
			wait = oftenLook
		}
	}
}

// checkAll checks each log once, and reports whether one grows fast.
func (o *Rotator) checkAll(ctx context.Context) (fast bool) {
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

// one rotates a container's log if that is due. Otherwise it returns the size, and whether to check again soon. The
// first check also completes a rotation that another engine left half done.
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
