package rows

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/tools/bench/report"
)

func newBench() *Bench {
	return &Bench{Runs: 3, Report: &report.Report{}, Progress: func(string) {}}
}

// TestPair expects turns, each round started by another contender. A failing contender must not stop the others.
func TestPair(t *testing.T) {
	b := newBench()
	var order []string
	contend := func(name string, fail int) contender {
		row := b.row(report.Row{Name: name}, nil)
		return contender{
			row:     row,
			prepare: func(context.Context) error { order = append(order, "prepare "+name); return nil },
			sample: func(context.Context) error {
				if len(row.Samples) == fail {
					return errors.New("broken")
				}
				order = append(order, name)
				row.Add(1)
				return nil
			},
		}
	}
	absent := b.row(report.Row{Name: "absent", Absent: "not here"}, nil)
	if err := b.pair(t.Context(), 3, contend("a", -1), contend("b", 1), contender{row: absent}); err != nil {
		t.Fatal(err)
	}
	want := strings.Split("prepare a,a,prepare b,b,prepare b,prepare a,a,prepare a,a", ",")
	if diff := cmp.Diff(want, order); diff != "" {
		t.Error(diff)
	}
	var failed []string
	for _, r := range b.Report.Rows {
		failed = append(failed, r.Failed)
	}
	if diff := cmp.Diff([]string{"", "sample 2: broken", ""}, failed[1:]); failed[0] != "" && diff != "" {
		t.Errorf("failures: %q", failed)
	}
}

func TestPairIsInterrupted(t *testing.T) {
	b := newBench()
	ctx, cancel := context.WithCancel(t.Context())
	row := b.row(report.Row{Name: "a"}, nil)
	err := b.pair(ctx, 3, contender{row: row, sample: func(ctx context.Context) error {
		cancel()
		return ctx.Err()
	}})
	if !errors.Is(err, context.Canceled) || row.Failed != "" {
		t.Errorf("%v, %q", err, row.Failed)
	}
}

func TestTimings(t *testing.T) {
	got := timings("a warning\n      0.2 ms  reserve\n    301.8 ms  machine: machine\nx ms  none\n")
	if diff := cmp.Diff([]phase{{"reserve", 0.2}, {"machine: machine", 301.8}}, got, cmp.AllowUnexported(phase{})); diff != "" {
		t.Error(diff)
	}
}

func TestAimsAreOfTheFirstBuild(t *testing.T) {
	b := newBench()
	if r := b.row(report.Row{Name: "a", Aim: 1}, &Build{}); r.Name != "a" || r.Aim != 1 {
		t.Errorf("%+v", r)
	}
	if r := b.row(report.Row{Name: "a", Aim: 1}, &Build{Mark: "against"}); r.Name != "a (against)" || r.Aim != 0 {
		t.Errorf("%+v", r)
	}
}
