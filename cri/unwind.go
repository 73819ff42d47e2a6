package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"

	"github.com/bulkhead-project/bulkhead/cri/store"
	"github.com/bulkhead-project/bulkhead/internal/fault"
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
)

// networkUndo is what a network is detached with.
type networkUndo struct {
	Kind network.Kind `json:"kind"`
}

// stopTimeout bounds the end of one machine and its shim.
const stopTimeout = 60 * time.Second

// handlers undo what a pod's journal names. Each is idempotent.
func (s *Service) handlers(id string) journal.Handlers {
	return journal.Handlers{
		undoNetwork: func(ctx context.Context, args json.RawMessage) error {
			var u networkUndo
			if err := json.Unmarshal(args, &u); err != nil {
				return err
			}
			p, err := s.provider(asked(u.Kind))
			if err != nil {
				return err
			}
			return p.Detach(ctx, id)
		},
		undoShim: func(ctx context.Context, _ json.RawMessage) error {
			ctx, cancel := context.WithTimeout(ctx, stopTimeout)
			defer cancel()
			return s.endPod(ctx, id)
		},
		undoCgroup: endGroup,
	}
}

// endShim asks a pod's shim to end the machine and itself, or ends the machine
// if there is no shim.
func (s *Service) endShim(ctx context.Context, id string) error {
	dir := s.store.StateDir(id)
	c, err := s.shims.Connect(ctx, dir)
	if errors.Is(err, shim.ErrNotRunning) {
		// Its machine may live on, whether or not anything tells of it.
		return s.machines.End(ctx, filepath.Join(dir, layout.VM))
	}
	if err != nil {
		return fmt.Errorf("reach the shim of pod %s: %w", short(id), err)
	}
	defer func() { _ = c.close() }()
	_, err = c.ShutdownSandbox(ctx, &sandboxv1.ShutdownSandboxRequest{SandboxID: id})
	if err != nil {
		select {
		case <-c.done: // it was dying, or did not live to answer
			return s.machines.End(ctx, filepath.Join(dir, layout.VM))
		default:
		}
		return fail(err, "end the machine of pod %s", short(id))
	}
	_ = c.close() // which is what the shim waits for, that has answered
	return fail(c.ended(ctx), "wait for the end of the shim of pod %s", short(id))
}

// unwind undoes all there is of a pod but its name. What fails stays in the
// journal, and the pod's directory with it, for the next Reap.
func (s *Service) unwind(ctx context.Context, id string) error {
	j := s.store.Journal(id)
	if err := j.Undo(ctx, s.handlers(id)); err != nil {
		return err
	}
	fault.Point("unwind.undone")
	if err := s.o.Images.UnpinAll(ctx, id); err != nil {
		return err
	}
	fault.Point("unwind.unpinned")
	// Asked for by the pod's id: a crash may have come before the record.
	if err := uids.ReleaseAll(s.uids(), id); err != nil {
		return err
	}
	fault.Point("unwind.freed")
	if err := j.Remove(ctx); err != nil {
		return err
	}
	fault.Point("unwind.journal")
	return s.store.DropPod(id)
}

// markRemoving is written before a pod's end, so that a crash in the middle
// ends in its removal.
func markRemoving(r *store.Pod) { r.Phase = store.Removing }
