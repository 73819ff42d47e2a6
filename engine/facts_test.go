package engine_test

import (
	"errors"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
)

// TestWallsNote checks that a pod reports the walls that the kernel lacks.
func TestWallsNote(t *testing.T) {
	t.Parallel()
	w := enginetest.New()
	e := enginetest.Open(t, w.In(enginetest.Options(t, enginetest.Roots(t))))
	id, err := e.StartPod(t.Context(), podRequest("a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, lacks := range []error{nil, errors.New("no Landlock")} {
		e.SetMissing(lacks)
		want := ""
		if lacks != nil {
			want = lacks.Error()
		}
		if facts, err := e.Facts(t.Context(), id); err != nil || facts.WallsNote != want {
			t.Errorf("it says %q, not %q: %v", facts.WallsNote, want, err)
		}
	}
}
