package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/shim/layout"
	"github.com/bulkhead-project/bulkhead/shim/uids"
)

const (
	// shimPatience is what a shim has to end its pod by itself.
	shimPatience = 20 * time.Second
	// killPatience is for the end of what was killed.
	killPatience = 15 * time.Second
)

// endPod ends a pod's shim and machine: it asks the shim, and then, whatever
// that has said or not said, kills what is left of the pod. Its directory is
// its own user's, so what that tells of an end is not believed.
func (s *Service) endPod(ctx context.Context, id string) error {
	askCtx, cancel := context.WithTimeout(ctx, shimPatience)
	asked := s.endShim(askCtx, id)
	cancel()
	killCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killPatience)
	defer cancel()
	owned, err := s.podUsers(id)
	if err != nil {
		return errors.Join(asked, err)
	}
	killed, err := procid.KillAll(killCtx, func(pid int) bool {
		if len(owned) > 0 {
			return slices.ContainsFunc(owned, func(uid int) bool { return procid.RunsAs(pid, uid) })
		}
		return procid.RunsAs(pid, os.Geteuid()) && saysIt(procid.Args(pid), id)
	})
	if err != nil {
		return errors.Join(asked, fmt.Errorf("kill what is left of pod %s: %w", short(id), err))
	}
	if asked == nil && killed == 0 {
		return nil
	}
	s.log.Warn("a pod did not end by itself", "pod", id, "killed", killed, "error", asked)
	if killed == 0 && len(owned) == 0 {
		return asked // nobody knows what became of it
	}
	if err := s.machines.End(killCtx, filepath.Join(s.store.StateDir(id), layout.VM)); err != nil {
		s.log.Warn("clear up after a machine that was killed", "pod", id, "error", err)
	}
	return nil
}

// podUsers are the pod's own users, of which nobody else's process is; none
// where pods run as the engine's user. They are asked for by the pod's id: a
// crash may have come before the record.
func (s *Service) podUsers(id string) ([]int, error) {
	held, err := uids.List(s.uids())
	if err != nil {
		return nil, err
	}
	var owned []int
	for uid, holder := range held {
		if holder == id && uid >= uids.First && uid < uids.First+uids.Count {
			owned = append(owned, uid)
		}
	}
	return owned, nil
}

// saysIt reports whether a process of these arguments says that it is the
// pod's shim or machine. It can lie about nobody but itself.
func saysIt(args []string, id string) bool {
	if len(args) > 2 && args[0] == "bulkhead-shim" && args[2] == id {
		return true
	}
	name := slices.Index(args, "-name") + 1
	return name > 0 && name < len(args) && strings.HasSuffix(args[name], "bulkhead-"+short(id))
}
