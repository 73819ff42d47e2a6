package rows

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/tools/bench/report"
)

func TestAtOnce(t *testing.T) {
	var all [5]atomic.Bool
	if took, err := atOnce(len(all), func(i int) error { all[i].Store(true); return nil }); err != nil || took <= 0 {
		t.Errorf("%s, %v", took, err)
	}
	for i := range all {
		if !all[i].Load() {
			t.Errorf("%d was not called", i)
		}
	}
	broken := errors.New("broken")
	if _, err := atOnce(2, func(i int) error { return []error{nil, broken}[i] }); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// TestSustain expects consecutive pods in each row, and none after a failure.
func TestSustain(t *testing.T) {
	var now, most, n atomic.Int32
	rate, err := sustain(t.Context(), 3, 20*time.Millisecond, func(context.Context, int) error {
		if c := now.Add(1); c > most.Load() {
			most.Store(c)
		}
		n.Add(1)
		now.Add(-1)
		return nil
	})
	if err != nil || rate <= 0 || n.Load() < 3 || most.Load() > 3 {
		t.Errorf("%v a minute of %d, %d at once: %v", rate, n.Load(), most.Load(), err)
	}
	broken := errors.New("broken")
	if _, err := sustain(t.Context(), 1, time.Hour, func(context.Context, int) error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestRatio(t *testing.T) {
	b := newBench()
	b.ratio(report.Row{Name: "none"}, &report.Row{}, &report.Row{Samples: []float64{1}})
	if len(b.Report.Rows) != 0 {
		t.Error("a ratio without samples")
	}
	b.ratio(report.Row{Name: "half"}, &report.Row{Samples: []float64{1}}, &report.Row{Samples: []float64{2}})
	if diff := cmp.Diff([]float64{0.5}, b.Report.Rows[0].Samples); diff != "" {
		t.Error(diff)
	}
}

func TestRivalRows(t *testing.T) {
	b := newBench()
	r := b.rivalRow(report.Row{Name: "x", Aim: 1, What: "y"}, &rival{name: "podman", what: "run", absent: "not here"})
	if r.Name != "x (podman)" || r.Aim != 0 || r.What != "run: the same" || r.Absent != "not here" {
		t.Errorf("%+v", r)
	}
	if r := b.rivalRow(report.Row{Name: "x", Aim: 1}, &rival{}); r.Name != "x" || r.Aim != 1 {
		t.Errorf("%+v", r)
	}
}

func TestRounds(t *testing.T) {
	for pods, want := range map[int]int{1: 20, 10: 10, 50: 4} {
		if got := rounds(20, pods); got != want || rounds(1, pods) != 1 {
			t.Errorf("%d pods: %d rounds", pods, got)
		}
	}
}
