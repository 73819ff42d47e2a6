package engine

import (
	"testing"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/engine/failure"
)

// TestEndContainers checks that running containers are killed and awaited while the shim answers, and that the stop
// does not wait for one that cannot be killed.
func TestEndContainers(t *testing.T) {
	t.Parallel()
	gone := failure.New(errdefs.ErrNotFound, "gone")
	for _, tc := range []struct {
		name           string
		state          State
		paused, noShim bool
		errs           errs
		then           State
		calls          []string
	}{
		{name: "runs", then: ContainerExited, calls: []string{"Kill 9 all", "Wait", "Status"}},
		{name: "does not run yet", state: ContainerCreated, then: ContainerExited, calls: []string{"Kill 9 all", "Wait", "Status"}},
		{name: "has ended", state: ContainerExited, then: ContainerExited, calls: []string{"Status"}},
		{name: "is not there any more", errs: errs{"Kill": {gone}}, then: ContainerExited, calls: []string{"Kill 9 all", "Wait", "Status"}},
		{name: "cannot be killed", errs: errs{"Kill": {errInjected}}, then: ContainerRunning, calls: []string{"Kill 9 all"}},
		{name: "does not end", errs: errs{"Wait": {errInjected}}, then: ContainerExited, calls: []string{"Kill 9 all", "Wait", "Status"}},
		{name: "is paused", paused: true, then: ContainerExited, calls: []string{"Status"}},
		{name: "has no shim", noShim: true, then: ContainerRunning},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{errs: tc.errs}
			c := scriptedPod(t, s, or(tc.state, ContainerRunning))
			s.says(c, ContainerExited)
			c.pod.paused = tc.paused
			if tc.noShim {
				c.pod.conn = nil
			}
			c.pod.endContainers(t.Context())
			if got := c.now(); got != tc.then {
				t.Errorf("it is %s then", got)
			}
			s.same(t, tc.calls...)
		})
	}
}
