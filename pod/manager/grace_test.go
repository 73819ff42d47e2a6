package manager

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestGraceIsKept: the next manager ends a pod within the rest of its shortest grace.
func TestGraceIsKept(t *testing.T) {
	for _, tt := range []struct {
		name   string
		graces []int64 // of successive Stops
		down   time.Duration
		want   int64 // of the next manager
	}{
		{name: "longer than the pod's own", graces: []int64{600}, down: time.Minute, want: 538},
		{name: "the shortest", graces: []int64{600, 300, 900}, down: time.Minute, want: 236},
		{name: "restarted by a shorter one", graces: []int64{10, 9}, want: 7},
		{name: "over", graces: []int64{10}, down: time.Minute, want: leastGrace},
		{name: "the clock is set back", graces: []int64{10}, down: -time.Hour, want: 10},
		{name: "none", graces: []int64{0}, want: 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.runtime.dying = time.Hour
				m := w.open()
				p := w.run(m, Record{Pod: spec("web")})
				if tt.graces[0] == 0 {
					w.runtime.fail("StopPodSandbox", errors.New("not yet"))
				}
				for _, grace := range tt.graces {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					if err := p.Stop(ctx, &grace); !errors.Is(err, context.DeadlineExceeded) {
						t.Fatal(err)
					}
				}
				m.Close()
				if tt.down < 0 {
					p.rec.EndBy = p.rec.EndBy.Add(-tt.down)
					if err := p.save(); err != nil {
						t.Fatal(err)
					}
				} else {
					time.Sleep(tt.down)
				}
				w.runtime.fail("StopPodSandbox", nil)
				w.runtime.graces = nil
				m = w.open()
				if err := m.WaitDetached(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				rec := w.find(m, "web").record()
				if tt.want > 0 && !slices.Equal(w.runtime.graces, []int64{tt.want}) || *rec.Grace != tt.want {
					t.Errorf("ended within %v, saved %d, want %d", w.runtime.graces, *rec.Grace, tt.want)
				}
			})
		})
	}
}

// TestGraceOfTheNextRun: a pod that is started again has its own grace again.
func TestGraceOfTheNextRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		p := w.run(m, Record{Pod: spec("web")})
		if err := p.Stop(t.Context(), noGrace()); err != nil {
			t.Fatal(err)
		}
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.runtime.graces = nil
		if err := p.Stop(t.Context(), nil); err != nil || !slices.Equal(w.runtime.graces, []int64{5}) {
			t.Errorf("ended within %v: %v", w.runtime.graces, err)
		}
	})
}
