package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/measuretest"
)

// spoil replaces a file by a directory, or a directory by a file, until mend is called.
func spoil(t *testing.T, path string) (mend func()) {
	t.Helper()
	aside := path + ".aside"
	info, err := os.Lstat(path)
	there := err == nil
	if there {
		err = os.Rename(path, aside)
	}
	if there && !info.IsDir() {
		err = errors.Join(err, os.MkdirAll(filepath.Join(path, "full"), 0o700))
	} else if there || errors.Is(err, os.ErrNotExist) {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		err := os.RemoveAll(path)
		if there {
			err = errors.Join(err, os.Rename(aside, path))
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// TestEndOfAPodFails checks that a pod stays visible after a failed stop or removal, and that the next try
// succeeds.
func TestEndOfAPodFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		fails func(t *testing.T, w *enginetest.World, o engine.Options, id string) (mend func())
		first bool // the pod is stopped before
		stops bool // the stop succeeds
	}{
		{
			name: "the network cannot be left",
			fails: func(_ *testing.T, w *enginetest.World, _ engine.Options, _ string) func() {
				w.Fail("Detach", enginetest.ErrInjected)
				return func() { w.Fail("Detach", nil) }
			},
		},
		{
			name:  "the users of a pod that runs",
			fails: func(t *testing.T, _ *enginetest.World, o engine.Options, _ string) func() { return spoil(t, o.Users) },
		},
		{
			name: "the users of one that was stopped", first: true,
			fails: func(t *testing.T, _ *enginetest.World, o engine.Options, _ string) func() { return spoil(t, o.Users) },
		},
		{
			name: "its images", stops: true,
			fails: func(t *testing.T, _ *enginetest.World, o engine.Options, _ string) func() {
				return spoil(t, filepath.Join(o.Roots.Data, "images", "pins"))
			},
		},
		{
			name: "its journal",
			fails: func(t *testing.T, _ *enginetest.World, o engine.Options, id string) func() {
				return spoil(t, filepath.Join(o.Roots.Sandboxes(), id, "journal"))
			},
		},
		{
			name: "its journal, after the stop", first: true,
			fails: func(t *testing.T, _ *enginetest.World, o engine.Options, id string) func() {
				return spoil(t, filepath.Join(o.Roots.Sandboxes(), id, "journal"))
			},
		},
		{
			name: "its name", stops: true,
			fails: func(t *testing.T, _ *enginetest.World, o engine.Options, _ string) func() {
				return spoil(t, filepath.Join(o.Roots.Data, "names", o.Instance))
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := enginetest.New()
			o := w.In(enginetest.Options(t, enginetest.Roots(t)))
			e := enginetest.Open(t, o)
			id, err := e.StartPod(t.Context(), podRequest("p"))
			if err == nil && tc.first {
				err = e.StopPod(t.Context(), id)
			}
			if err != nil {
				t.Fatal(err)
			}
			mend := tc.fails(t, w, o, id)
			if !tc.first {
				err := e.StopPod(t.Context(), id)
				p, findErr := e.Pod(id)
				if (err == nil) != tc.stops || p.Ready == tc.stops || findErr != nil {
					t.Errorf("stopped: %v; it is ready: %v, %v", err, p.Ready, findErr)
				}
			}
			err = e.RemovePod(t.Context(), id)
			if _, findErr := e.Pod(id); err == nil || findErr != nil {
				t.Errorf("removed: %v, %v", err, findErr)
			}
			mend()
			if err := errors.Join(e.StopPod(t.Context(), id), e.RemovePod(t.Context(), id)); err != nil {
				t.Errorf("once more: %v", err)
			}
			enginetest.NothingLeft(t, o)
			w.Clean(t)
		})
	}
}

// TestPhasesOfAStop checks that the facts of a stopped pod include the parts of its stop.
func TestPhasesOfAStop(t *testing.T) {
	t.Parallel()
	var tally measuretest.Tally
	o := enginetest.New().In(enginetest.Options(t, enginetest.Roots(t)))
	o.Observer = &tally
	e := enginetest.Open(t, o)
	id, err := e.StartPod(t.Context(), podRequest("p"))
	for range 2 { // the second stop does nothing
		if err == nil {
			err = e.StopPod(t.Context(), id)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	stops := tally.Stops()
	for _, want := range []string{"containers", "shim", "network"} {
		named := func(p measure.Phase) bool { return p.Name == want }
		if len(stops) != 1 || !slices.ContainsFunc(stops[0], named) {
			t.Errorf("reported: %v, without %s", stops, want)
		}
	}
	f, err := e.Facts(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"total", "stop: containers", "stop: shim", "stop: network"} {
		if !slices.ContainsFunc(f.Phases, func(p engine.Phase) bool { return p.Name == want }) {
			t.Errorf("no phase %q: %v", want, f.Phases)
		}
	}
}
