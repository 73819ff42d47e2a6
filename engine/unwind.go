package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"

	"github.com/bulkhead-project/bulkhead/engine/disks"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/group"
	"github.com/bulkhead-project/bulkhead/engine/shares"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/sandbox/journal"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/layout"
	"github.com/bulkhead-project/bulkhead/shim/uids"
)

// The kinds of the journal's entries.
const (
	undoNetwork = "network"
	undoShim    = "shim"
	undoShares  = "shares"
)

// networkUndo records the network to detach from.
type networkUndo struct {
	Kind network.Kind `json:"kind"`
}

// stopTimeout bounds the end of one VM and its shim.
const stopTimeout = 60 * time.Second

// handlers returns the functions that undo the entries of a pod's journal. Each is idempotent.
func (e *Engine) handlers(id string) journal.Handlers {
	return journal.Handlers{
		undoNetwork: func(ctx context.Context, args json.RawMessage) error {
			var u networkUndo
			if err := json.Unmarshal(args, &u); err != nil {
				return err
			}
			p, err := e.networks.Of(u.Kind)
			if err != nil {
				return err
			}
			return p.Detach(ctx, id)
		},
		undoShim: func(ctx context.Context, _ json.RawMessage) error {
			ctx, cancel := context.WithTimeout(ctx, stopTimeout)
			defer cancel()
			return e.endPod(ctx, id)
		},
		undoShares: func(ctx context.Context, _ json.RawMessage) error { return e.endShares(ctx, id) },
		disks.Undo: func(ctx context.Context, args json.RawMessage) error { return e.undoTransfer(ctx, id, args) },
		group.Undo: func(ctx context.Context, args json.RawMessage) error { return e.endGroup(ctx, id, args) },
	}
}

// endShares ends the process that serves the host's directories to the pod.
func (e *Engine) endShares(ctx context.Context, id string) error {
	r, err := e.store.Pod(id)
	if errors.Is(err, os.ErrNotExist) {
		return nil // no server started: it starts only after the record exists
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return shares.Kill(ctx, r.ShareServer)
}

// endGroup removes a pod's cgroup. If its last process hangs in the kernel, a later Reap removes it.
func (e *Engine) endGroup(ctx context.Context, id string, args json.RawMessage) error {
	err := group.Destroy(ctx, args)
	if errors.Is(err, group.ErrDying) {
		e.log.Warn("a pod's process waits for a file system that does not answer; its cgroup is removed later", "pod", id, "error", err)
		return nil
	}
	return err
}

// undoTransfer returns the disk to the pod's predecessor. It refuses while the pod's VM may still run and write to the
// disk.
func (e *Engine) undoTransfer(ctx context.Context, id string, args json.RawMessage) error {
	loan, err := disks.LoanOf(args)
	if err != nil {
		return err
	}
	pending, err := e.store.Journal(id).Pending(ctx)
	if err != nil {
		return err
	}
	if namesShim(pending) {
		return fmt.Errorf("give the disk back to pod %s: the VM may still run", shortid.Of(loan.From))
	}
	e.mu.Lock()
	from := e.pods[loan.From]
	e.mu.Unlock()
	if from != nil { // a removal may be under way
		if err := from.acquire(ctx); err != nil {
			return err
		}
		defer from.done()
	}
	return e.disks.UndoTransfer(id, loan)
}

// namesShim reports whether the journal still names the shim.
func namesShim(pending []journal.Entry) bool {
	return slices.ContainsFunc(pending, func(entry journal.Entry) bool { return entry.Kind == undoShim })
}

// endShim asks a pod's shim to end the VM and itself. Without a shim it ends the VM directly.
func (e *Engine) endShim(ctx context.Context, id string) error {
	dir := e.store.StateDir(id)
	c, err := e.shims.Connect(ctx, dir)
	if errors.Is(err, shim.ErrNotRunning) {
		// The VM may still run, recorded or not.
		return e.vms.End(ctx, filepath.Join(dir, layout.VM))
	}
	if err != nil {
		return fmt.Errorf("reach the shim of pod %s: %w", shortid.Of(id), err)
	}
	defer func() { _ = c.Close() }()
	_, err = c.ShutdownSandbox(ctx, &sandboxv1.ShutdownSandboxRequest{SandboxID: id})
	if err != nil {
		select {
		case <-c.Done: // the shim died before it answered
			return e.vms.End(ctx, filepath.Join(dir, layout.VM))
		default:
		}
		return failure.Wrap(err, "end the VM of pod %s", shortid.Of(id))
	}
	_ = c.Close() // the shim waits for this after its answer
	return failure.Wrap(c.Ended(ctx), "wait for the end of the shim of pod %s", shortid.Of(id))
}

// unwind undoes everything of a pod but its name. A failed step stays in the journal, and the pod's directory
// stays, for the next Reap.
func (e *Engine) unwind(ctx context.Context, id string) error {
	j := e.store.Journal(id)
	pending, err := j.Pending(ctx)
	if err != nil {
		return err
	}
	undo := e.handlers(id)
	if !namesShim(pending) {
		// A damaged journal may have lost the entry. Resources that a process still uses must not be freed.
		if err := undo[undoShim](ctx, nil); err != nil {
			return err
		}
	}
	if err := j.Undo(ctx, undo); err != nil {
		return err
	}
	fault.Point("unwind.undone")
	if err := e.images.UnpinAll(ctx, id); err != nil {
		return err
	}
	fault.Point("unwind.unpinned")
	// The leases are found by the pod's id, because a crash may have come before the record.
	if err := uids.ReleaseAll(e.o.Users, id); err != nil {
		return err
	}
	fault.Point("unwind.freed")
	if err := j.Remove(ctx); err != nil {
		return err
	}
	fault.Point("unwind.journal")
	return e.store.DropPod(id)
}

// markRemoving marks a pod before its end, so that Reap completes the removal after a crash.
func markRemoving(r *store.Pod) { r.Phase = store.Removing }

const (
	// shimPatience is the time for a shim to end its pod by itself.
	shimPatience = 20 * time.Second
	// killPatience is the time for killed processes to exit.
	killPatience = 15 * time.Second
)

// endPod ends a pod's shim and VM. It asks the shim first, and then kills the remaining processes of the pod,
// whatever the shim answered. The shim's directory belongs to the pod's user, so endPod does not trust files in it.
func (e *Engine) endPod(ctx context.Context, id string) error {
	askCtx, cancel := context.WithTimeout(ctx, shimPatience)
	asked := e.endShim(askCtx, id)
	cancel()
	killCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killPatience)
	defer cancel()
	owned, err := e.podUsers(id)
	if err != nil {
		return errors.Join(asked, err)
	}
	killed, err := procid.KillAll(killCtx, processOf(id, owned))
	if err != nil {
		return errors.Join(asked, fmt.Errorf("kill the remaining processes of pod %s: %w", shortid.Of(id), err))
	}
	if asked == nil && killed == 0 {
		return nil
	}
	e.log.Warn("a pod did not end by itself", "pod", id, "killed", killed, "error", asked)
	if killed == 0 && len(owned) == 0 {
		return asked // the VM may still run
	}
	if err := e.vms.End(killCtx, filepath.Join(e.store.StateDir(id), layout.VM)); err != nil {
		e.log.Warn("clean up after a killed VM", "pod", id, "error", err)
	}
	return nil
}

// podUsers returns the users that only this pod's processes have. There are none where pods run as the engine's
// user. They are found by the pod's id, because a crash may have come before the record.
func (e *Engine) podUsers(id string) ([]int, error) {
	return uids.Held(e.o.Users, id)
}

// processOf returns a function that recognises the processes of a pod. All processes of the pod's users belong to
// it. Without users, processes of the engine's user that name the pod belong to it. A dying share server does not
// count.
func processOf(id string, owned []int) func(pid int) bool {
	if len(owned) == 0 {
		return func(pid int) bool { return procid.RunsAs(pid, os.Geteuid()) && namesPod(procid.Args(pid), id) }
	}
	return func(pid int) bool {
		return slices.ContainsFunc(owned, func(uid int) bool { return procid.RunsAs(pid, uid) }) && !shares.Dying(pid)
	}
}

// namesPod reports whether the arguments of a process name it as the pod's shim or VM. A process can lie only about
// itself.
func namesPod(args []string, id string) bool {
	if len(args) > 2 && args[0] == "bulkhead-shim" && args[2] == id {
		return true
	}
	name := slices.Index(args, "-name") + 1
	return name > 0 && name < len(args) && strings.HasSuffix(args[name], "bulkhead-"+shortid.Of(id))
}
