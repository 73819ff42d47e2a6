package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
)

// TestCloseReleasesNetworks checks that Close removes the networks unless a pod still runs, even one that the
// engine does not hold.
func TestCloseReleasesNetworks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		do       func(w *enginetest.World, e *engine.Engine, id string) error
		released bool
	}{
		{name: "a pod that runs", do: func(*enginetest.World, *engine.Engine, string) error { return nil }},
		{
			name: "a pod that was stopped",
			do: func(_ *enginetest.World, e *engine.Engine, id string) error {
				return e.StopPod(context.Background(), id)
			},
			released: true,
		},
		{
			name: "a pod that was removed",
			do: func(_ *enginetest.World, e *engine.Engine, id string) error {
				return e.RemovePod(context.Background(), id)
			},
			released: true,
		},
		{
			name: "a pod whose start fails and cannot be undone",
			do: func(w *enginetest.World, e *engine.Engine, id string) error {
				w.Fail("StartSandbox", enginetest.ErrInjected)
				w.Fail("Detach", enginetest.ErrInjected)
				if other, err := e.StartPod(context.Background(), podRequest("b")); err == nil {
					return errors.New("started " + other)
				}
				w.Fail("Detach", nil)
				return e.RemovePod(context.Background(), id)
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := enginetest.New()
			o := w.In(enginetest.Options(t, enginetest.Roots(t)))
			e := enginetest.Open(t, o)
			id, err := e.StartPod(t.Context(), podRequest("a"))
			if err != nil {
				t.Fatal(err)
			}
			if err := test.do(w, e, id); err != nil {
				t.Fatal(err)
			}
			if err := e.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			if released := slices.Contains(w.Calls(), "Release"); released != test.released {
				t.Errorf("released: %v", released)
			}
		})
	}
}
