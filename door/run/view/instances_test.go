package view

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
)

// TestForeign: ps -A shows the pods of doors in other processes, which no command can name.
func TestForeign(t *testing.T) {
	t.Parallel()
	w := enginetest.New()
	s := &Service{Engine: enginetest.Open(t, w.In(enginetest.Options(t, enginetest.Roots(t))))}
	if _, err := s.Engine.StartPod(t.Context(), engine.PodRequest{Key: "default/web/uid/0"}); err != nil {
		t.Fatal(err)
	}
	id, err := s.Engine.StartPod(t.Context(), engine.PodRequest{Key: engine.DoorKey("oci", "c1\x1b[2J")})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Engine.Pod(id)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, phase, status string }{
		{name: "one that runs", phase: "Running", status: "ready"},
		{name: "a stopped one", phase: "Succeeded", status: "stopped"},
	} {
		want := []api.Pod{{
			Instance: "run/oci", Sandbox: id, UID: id, Name: "c1?[2J", Phase: tc.phase, Status: tc.status,
			Created: p.Created, IP: "10.0.2.15",
		}}
		got, err := s.foreign()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", tc.name, err, diff)
		}
		if err := s.Engine.StopPod(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
}
