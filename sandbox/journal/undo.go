package journal

import (
	"context"
	"errors"
	"fmt"

	"encoding/json"

	"github.com/bulkhead-project/bulkhead/internal/fault"
)

// Handlers undo entries by their kind. A handler is given the arguments that
// Before was, and is idempotent: it may be called again after it succeeded,
// and for a side effect that was never begun.
type Handlers map[string]func(ctx context.Context, args json.RawMessage) error

// Undo undoes what is pending, newest first, and marks what succeeded. One
// failure does not keep the others from being undone; what failed stays for
// the next Undo. It returns all failures, and stops early only when ctx ends.
func (j Journal) Undo(ctx context.Context, h Handlers) error {
	entries, err := j.Pending(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i := len(entries) - 1; i >= 0; i-- {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, fmt.Errorf("undo %d more entries: %w", i+1, err))...)
		}
		if err := j.undo(ctx, h, entries[i]); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
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
