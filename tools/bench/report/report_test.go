package report

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAims(t *testing.T) {
	for name, tc := range map[string]struct {
		row  Row
		want string
	}{
		"no aim":         {Row{Samples: []float64{1}}, ""},
		"no sample":      {Row{Aim: 100}, ""},
		"kept":           {Row{Aim: 100, Samples: []float64{100}}, "yes"},
		"missed":         {Row{Aim: 100, Samples: []float64{120}}, "no (+20 %)"},
		"more is better": {Row{Aim: 100, Samples: []float64{120}, Higher: true}, "yes"},
		"too little":     {Row{Aim: 100, Samples: []float64{50}, Higher: true}, "no (-50 %)"},
	} {
		if got := tc.row.AimMet(); got != tc.want {
			t.Errorf("%s: %q instead of %q", name, got, tc.want)
		}
	}
}

func TestWorseEnd(t *testing.T) {
	r := Row{Samples: []float64{1, 2, 3}}
	if got := r.P95(); got != 3 {
		t.Errorf("p95 where less is better: %v", got)
	}
	r.Higher = true
	if got := r.P95(); got != 1 {
		t.Errorf("p95 where more is better: %v", got)
	}
}

func TestPrint(t *testing.T) {
	slow := &Row{Group: "b", Name: "slow", Unit: "ms", Aim: 10, Samples: []float64{20, 30, 40}}
	slow.AddPhase("think", 12)
	slow.AddPhase("think", 14)
	rep := Report{
		Facts: Facts{CPU: "abacus", Versions: map[string]string{}},
		Rows: []*Row{
			{Group: "a", Name: "fast", Unit: "ms", Aim: 100, Samples: []float64{1.234}, What: "what fast is"},
			slow,
			{Group: "b", Name: "many", Unit: "ms", Samples: []float64{8, 7, 6, 5, 4, 3, 2, 1}},
			{Group: "c", Name: "gone", Unit: "ms", Absent: "podman is not installed"},
			{Group: "c", Name: "broken", Unit: "ms", Failed: "no more"},
		},
	}
	rep.Facts.Version("qemu", "7.2")
	var b bytes.Buffer
	rep.Print(&b)
	for _, want := range []string{
		"fast      1.23                1.23  ms    1  ≤ 100   yes", "slow      30.0                40.0  ms    3  ≤ 10.0  no (+200 %)",
		"many      4.50  1.00 to 7.00  8.00  ms    8",
		"13.0 ms  think", "gone: not measured: podman", "broken: failed: no more", "fast: what fast is", "abacus", "qemu 7.2", "Nothing was left",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, b.String())
		}
	}
	if !rep.Failed() {
		t.Error("a report with a failed row does not fail")
	}
}

func TestJSON(t *testing.T) {
	raw, err := json.Marshal(&Row{Group: "a", Name: "x", Unit: "ms", Samples: []float64{2, 4}, Phases: []Phase{{"p", []float64{1}}}})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"group": "a", "name": "x", "what": "", "unit": "ms", "n": 2.0, "median": 3.0, "p95": 4.0, "samples": []any{2.0, 4.0},
		"phases": []any{map[string]any{"name": "p", "median": 1.0, "samples": []any{1.0}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := json.Marshal(&Row{}); err != nil {
		t.Errorf("a row without samples: %v", err)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{1234.5: "1234", 99.96: "100.0", 12.34: "12.3", 1.234: "1.23", 0: "0.00", math.NaN(): "-"} {
		if got := number(v); got != want && !math.IsNaN(v) {
			t.Errorf("%v: %q instead of %q", v, got, want)
		}
	}
}

func TestHost(t *testing.T) {
	f := Host(3)
	if f.Cores < 1 || f.Kernel == "" || len(strings.Fields(f.Load)) != 3 || f.CPU == "" || f.Runs != 3 {
		t.Errorf("%+v", f)
	}
}
