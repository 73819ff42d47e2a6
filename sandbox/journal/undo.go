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

// Handlers undo entries by their kind. A handler is given the arguments that
// Before was, and is idempotent: it may be called again after it succeeded,
// and for a side effect that was never begun.
type Handlers map[string]func(ctx context.Context, args json.RawMessage) error

// Undo undoes what is pending, newest first, and marks what succeeded. One
// failure does not keep the others from being undone; what failed stays for
// the next Undo. It returns all failures, and stops early only when ctx ends.
//
// Entries of the kinds together are undone at once, in the place of the newest of them.
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

// undoAll undoes entries at once.
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
		return fmt.Errorf("undo %s: %w", e.Kind, ErrUnknownKind)
	}
	fault.Point("undo." + e.Kind)
	if err := handler(ctx, e.Args); err != nil {
		return fmt.Errorf("undo %s: %w", e.Kind, err)
	}
	fault.Point("undone." + e.Kind)
	return j.Done(context.WithoutCancel(ctx), e.ID)
}
