// Package unwind undoes the start of a pod: VM, shim, network, share server and cgroup, a disk of another pod, pins of
// images, leases of users, and records. The pod's journal (package sandbox/journal) names most of these. Each entry is
// written before its resource is made, so an Unwinder needs no memory of the start. A pod's directories belong to the
// pod's user. An Unwinder therefore believes neither their files nor the shim.
package unwind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"

	"github.com/bulkhead-project/bulkhead/engine/disks"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/group"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/networks"
	"github.com/bulkhead-project/bulkhead/engine/shares"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/engine/vms"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/sandbox/journal"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/layout"
	"github.com/bulkhead-project/bulkhead/shim/uids"
)

// The kinds of the journal's entries, besides disks.Undo and group.Undo.
const (
	Network = "network" // with an Attached
	Shim    = "shim"
	Shares  = "shares"
)

// Attached records the network to detach from.
type Attached struct {
	Kind network.Kind `json:"kind"`
}

// Timeout bounds the end of one VM and its shim.
const Timeout = 60 * time.Second

// Unwinder undoes the pods of an instance. All fields are required.
type Unwinder struct {
	Store    *store.Store
	Shims    link.Shims
	VMs      vms.Source
	Images   *image.Store
	Networks *networks.Networks
	Disks    disks.Disks
	Users    string // the directory with the leases of pods' users
	Log      *slog.Logger
	// Acquire waits for the operation on another pod, which may be unknown. It returns the function that permits the
	// next operation.
	Acquire func(ctx context.Context, id string) (done func(), err error)
}

// Handlers returns the functions that undo the entries of a pod's journal. Each is idempotent.
func (u *Unwinder) Handlers(id string) journal.Handlers {
	return journal.Handlers{
		Network: func(ctx context.Context, args json.RawMessage) error {
			var at Attached
			if err := json.Unmarshal(args, &at); err != nil {
				return err
			}
			p, err := u.Networks.Of(at.Kind)
			if err != nil {
				return err
			}
			return p.Detach(ctx, id)
		},
		Shim: func(ctx context.Context, _ json.RawMessage) error {
			ctx, cancel := context.WithTimeout(ctx, Timeout)
			defer cancel()
			return u.endPod(ctx, id)
		},
		Shares:     func(ctx context.Context, _ json.RawMessage) error { return u.endShares(ctx, id) },
		disks.Undo: func(ctx context.Context, args json.RawMessage) error { return u.undoTransfer(ctx, id, args) },
		group.Undo: func(ctx context.Context, args json.RawMessage) error { return u.endGroup(ctx, id, args) },
	}
}

// endShares ends the process that serves the host's directories to the pod.
func (u *Unwinder) endShares(ctx context.Context, id string) error {
	r, err := u.Store.Pod(id)
	if errors.Is(err, os.ErrNotExist) {
		return nil // no server started: it starts only after the record exists
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	return shares.Kill(ctx, r.ShareServer)
}

// endGroup removes a pod's cgroup. If its last process hangs in the kernel, a later reap removes it.
func (u *Unwinder) endGroup(ctx context.Context, id string, args json.RawMessage) error {
	err := group.Destroy(ctx, args)
	if errors.Is(err, group.ErrDying) {
		u.Log.Warn("a pod's process waits for a file system that does not answer; its cgroup is removed later", "pod", id, "error", err)
		return nil
	}
	return err
}

// undoTransfer returns the disk to the pod's predecessor. It refuses while the pod's VM may still run and write to the
// disk.
func (u *Unwinder) undoTransfer(ctx context.Context, id string, args json.RawMessage) error {
	loan, err := disks.LoanOf(args)
	if err != nil {
		return err
	}
	pending, err := u.Store.Journal(id).Pending(ctx)
	if err != nil {
		return err
	}
	if namesShim(pending) {
		return fmt.Errorf("give the disk back to pod %s: the VM may still run", shortid.Of(loan.From))
	}
	done, err := u.Acquire(ctx, loan.From) // a removal may be under way
	if err != nil {
		return err
	}
	defer done()
	return u.Disks.UndoTransfer(id, loan)
}

// namesShim reports whether the journal still names the shim.
func namesShim(pending []journal.Entry) bool {
	return slices.ContainsFunc(pending, func(entry journal.Entry) bool { return entry.Kind == Shim })
}

// endShim asks a pod's shim to end the VM and itself. Without a shim it ends the VM directly.
func (u *Unwinder) endShim(ctx context.Context, id string) error {
	dir := u.Store.StateDir(id)
	c, err := u.Shims.Connect(ctx, dir)
	if errors.Is(err, shim.ErrNotRunning) {
		// The VM may still run, recorded or not.
		return u.VMs.End(ctx, filepath.Join(dir, layout.VM))
	}
	if err != nil {
		return fmt.Errorf("reach the shim of pod %s: %w", shortid.Of(id), err)
	}
	defer func() { _ = c.Close() }()
	_, err = c.ShutdownSandbox(ctx, &sandboxv1.ShutdownSandboxRequest{SandboxID: id})
	if err != nil {
		select {
		case <-c.Done: // the shim died before it answered
			return u.VMs.End(ctx, filepath.Join(dir, layout.VM))
		default:
		}
		return failure.Wrap(err, "end the VM of pod %s", shortid.Of(id))
	}
	_ = c.Close() // the shim waits for this after its answer
	return failure.Wrap(c.Ended(ctx), "wait for the end of the shim of pod %s", shortid.Of(id))
}

// Undo undoes everything of a pod but its name. A failed step stays in the journal, and the pod's directory
// stays, for the next Undo.
func (u *Unwinder) Undo(ctx context.Context, id string) error {
	j := u.Store.Journal(id)
	pending, err := j.Pending(ctx)
	if err != nil {
		return err
	}
	undo := u.Handlers(id)
	if !namesShim(pending) {
		// A damaged journal may have lost the entry. Resources that a process still uses must not be freed.
		if err := undo[Shim](ctx, nil); err != nil {
			return err
		}
	}
	if err := j.Undo(ctx, undo); err != nil {
		return err
	}
	fault.Point("unwind.undone")
	if err := u.Images.UnpinAll(ctx, id); err != nil {
		return err
	}
	fault.Point("unwind.unpinned")
	// The leases are found by the pod's id, because a crash may have come before the record.
	if err := uids.ReleaseAll(u.Users, id); err != nil {
		return err
	}
	fault.Point("unwind.freed")
	if err := j.Remove(ctx); err != nil {
		return err
	}
	fault.Point("unwind.journal")
	return u.Store.DropPod(id)
}

const (
	// ShimPatience is the time for a shim to end its pod by itself.
	ShimPatience = 20 * time.Second
	// killPatience is the time for killed processes to exit.
	killPatience = 15 * time.Second
)

// endPod ends a pod's shim and VM. It asks the shim first, and then kills the remaining processes of the pod,
// whatever the shim answered. The shim's directory belongs to the pod's user, so endPod does not trust files in it.
func (u *Unwinder) endPod(ctx context.Context, id string) error {
	askCtx, cancel := context.WithTimeout(ctx, ShimPatience)
	asked := u.endShim(askCtx, id)
	cancel()
	killCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killPatience)
	defer cancel()
	owned, err := uids.Held(u.Users, id) // not by the record, because a crash may have come before it
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
	u.Log.Warn("a pod did not end by itself", "pod", id, "killed", killed, "error", asked)
	if killed == 0 && len(owned) == 0 {
		return asked // the VM may still run
	}
	if err := u.VMs.End(killCtx, filepath.Join(u.Store.StateDir(id), layout.VM)); err != nil {
		u.Log.Warn("clean up after a killed VM", "pod", id, "error", err)
	}
	return nil
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
