package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/bulkhead-project/bulkhead/internal/fault"
)

// Handlers undo entries by their kind. A handler receives the arguments of Before and must be idempotent. It may be
// called again after it succeeded, and for a side effect that never began.
type Handlers map[string]func(ctx context.Context, args json.RawMessage) error

// Undo undoes the pending entries, newest first, and marks those that succeed. A failure does not stop the others; its
// entry stays for the next Undo. Undo returns all failures, and stops early only when ctx ends.
//
// Entries of the kinds in together are undone concurrently, when the newest of them is due.
func (j Journal) Undo(ctx context.Context, h Handlers, together ...string) error {
	entries, err := j.Pending(ctx)
	if err != nil {
		return err
	}
	var errs []error
	apart := func(e Entry) bool { return !slices.Contains(together, e.Kind) }
	for len(entries) > 0 {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, fmt.Errorf("undo %d more entries: %w", len(entries), err))...)
		}
		newest := len(entries) - 1
		batch, rest := entries[newest:], entries[:newest]
		if !apart(entries[newest]) {
			batch, rest = slices.DeleteFunc(slices.Clone(entries), apart), nil
			for _, e := range entries {
				if apart(e) {
					rest = append(rest, e)
				}
			}
		}
		errs, entries = append(errs, j.undoAll(ctx, h, batch)...), rest
	}
	return errors.Join(errs...)
}

// undoAll undoes entries concurrently.
func (j Journal) undoAll(ctx context.Context, h Handlers, batch []Entry) []error {
	errs := make([]error, len(batch))
	var wg sync.WaitGroup
	for i, e := range batch {
		wg.Go(func() { errs[i] = j.undo(ctx, h, e) })
	}
	wg.Wait()
	return errs
}

func (j Journal) undo(ctx context.Context, h Handlers, e Entry) error {
	handler := h[e.Kind]
	if handler == nil {
		return fmt.Errorf("undo %s: %w", e.Kind, errUnknownKind)
	}
	fault.Point("undo." + e.Kind)
	if err := handler(ctx, e.Args); err != nil {
		return fmt.Errorf("undo %s: %w", e.Kind, err)
	}
	fault.Point("undone." + e.Kind)
	return j.Done(context.WithoutCancel(ctx), e.ID)
}
