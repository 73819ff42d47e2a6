package engine

import (
	"errors"
	"os"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// TestServing checks that a server is recorded only for a live pod.
func TestServing(t *testing.T) {
	t.Parallel()
	server := procid.ID{PID: 4711}
	for name, tc := range map[string]struct {
		change func(p *pod)
		ok     bool
	}{
		"runs":        {func(*pod) {}, true},
		"has stopped": {func(p *pod) { p.record.Phase = store.Stopped }, false},
		"has ended":   {func(p *pod) { p.record.Exit = "killed" }, false},
		"is ended":    {func(p *pod) { p.ending = true }, false},
		"is removed":  {func(p *pod) { p.gone = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := reapEngine(t, &scriptedShims{})
			p := newPod(e, putPod(t, e, store.NewID(), store.Ready))
			tc.change(p)
			if p.gone {
				if err := os.RemoveAll(e.store.Dir(p.id)); err != nil {
					t.Fatal(err)
				}
			}
			err := sharesPod{p}.Serving(server)
			if (err == nil) != tc.ok || !tc.ok && grpccode.Of(err) != codes.FailedPrecondition {
				t.Errorf("%v", err)
			}
			r, err := e.store.Pod(p.id)
			if err == nil && (r.ShareServer == server) != tc.ok || p.gone != errors.Is(err, os.ErrNotExist) {
				t.Errorf("on record is %+v, %v", r, err)
			}
		})
	}
}
