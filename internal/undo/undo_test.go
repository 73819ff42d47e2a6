package undo

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var errStep, errUndo = errors.New("step failed"), errors.New("undo failed")

func operation(ctx context.Context, fail error, done *[]string) (err error) {
	var s Stack
	defer s.OnError(ctx, &err)
	for _, name := range []string{"a", "b", "c"} {
		s.Push(name, func(ctx context.Context) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			*done = append(*done, name)
			if name == "b" {
				return errUndo
			}
			return nil
		})
	}
	return fail
}

// Every undo runs, newest first, although one fails and the operation's own
// context is dead; the operation's error comes first.
func TestRollbackRunsToItsEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var done []string
	err := operation(ctx, errStep, &done)
	if diff := cmp.Diff([]string{"c", "b", "a"}, done); diff != "" {
		t.Error(diff)
	}
	if !errors.Is(err, errStep) || !errors.Is(err, errUndo) || !strings.HasPrefix(err.Error(), "step failed") {
		t.Errorf("error %v", err)
	}
}

func TestSuccessUndoesNothing(t *testing.T) {
	var done []string
	if err := operation(t.Context(), nil, &done); err != nil || done != nil {
		t.Errorf("undone %v, %v", done, err)
	}
}
