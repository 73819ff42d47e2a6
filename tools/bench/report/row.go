// Package report stores and prints the results of a benchmark.
package report

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// Row is one line of the table. It is not safe for concurrent use.
type Row struct {
	Group string // for the selection of rows
	Name  string
	What  string // what exactly was measured
	Unit  string
	// Higher means that more is better.
	Higher  bool
	Samples []float64
	// Aim bounds the median: from above, or from below if Higher. 0 means no aim.
	Aim float64
	// Phases has the samples of the parts of a sample, if they are known.
	Phases []Phase
	// Failed says why samples are missing. It is empty if all samples exist.
	Failed string
	// Absent says why nothing was measured, if that is no failure.
	Absent string
}

// Phase is a part of a row's samples.
type Phase struct {
	Name    string    `json:"name"`
	Samples []float64 `json:"samples"`
}

// Add adds a sample.
func (r *Row) Add(v float64) { r.Samples = append(r.Samples, v) }

// AddPhase adds a sample of a phase.
func (r *Row) AddPhase(name string, v float64) {
	for i := range r.Phases {
		if r.Phases[i].Name == name {
			r.Phases[i].Samples = append(r.Phases[i].Samples, v)
			return
		}
	}
	r.Phases = append(r.Phases, Phase{name, []float64{v}})
}

// confidence is the probability that the true median lies in the interval.
const confidence = 0.95

// summarize returns the median of samples, and an interval around it. All are NaN without samples.
func summarize(samples []float64) benchmath.Summary {
	if len(samples) == 0 {
		return benchmath.Summary{Center: math.NaN(), Lo: math.NaN(), Hi: math.NaN()}
	}
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(samples, &benchmath.DefaultThresholds), confidence)
}

// Median returns the median of the samples, NaN without samples.
func (r *Row) Median() float64 { return summarize(r.Samples).Center }

// P95 returns the value that 95 % of the samples are not worse than, NaN without samples.
func (r *Row) P95() float64 {
	if len(r.Samples) == 0 {
		return math.NaN()
	}
	sorted, part := slices.Sorted(slices.Values(r.Samples)), 0.95
	if r.Higher {
		part = 0.05
	}
	return sorted[max(int(math.Ceil(part*float64(len(sorted)))), 1)-1]
}

// interval formats the interval of the median. It is "" for too few samples.
func (r *Row) interval() string {
	s := summarize(r.Samples)
	if !known(s) {
		return ""
	}
	return number(s.Lo) + " to " + number(s.Hi)
}

// known reports whether the samples suffice for an interval.
func known(s benchmath.Summary) bool {
	return !math.IsNaN(s.Lo) && !math.IsInf(s.Lo, 0) && !math.IsInf(s.Hi, 0)
}

// AimMet says whether the median reaches the aim. It is "" without an aim or samples.
func (r *Row) AimMet() string {
	switch m := r.Median(); {
	case r.Aim == 0 || math.IsNaN(m):
		return ""
	case r.Higher && m < r.Aim, !r.Higher && m > r.Aim:
		return fmt.Sprintf("no (%+.0f %%)", (m/r.Aim-1)*100)
	}
	return "yes"
}

func (r *Row) aim() string {
	switch {
	case r.Aim == 0:
		return ""
	case r.Higher:
		return "≥ " + number(r.Aim)
	}
	return "≤ " + number(r.Aim)
}

// MarshalJSON encodes the raw samples and the summary.
func (r *Row) MarshalJSON() ([]byte, error) {
	type phase struct {
		Name    string    `json:"name"`
		Median  float64   `json:"median"`
		Samples []float64 `json:"samples"`
	}
	out := struct {
		Group   string    `json:"group"`
		Name    string    `json:"name"`
		What    string    `json:"what"`
		Unit    string    `json:"unit"`
		Higher  bool      `json:"higherIsBetter,omitempty"`
		N       int       `json:"n"`
		Median  *float64  `json:"median,omitempty"`
		Low     *float64  `json:"low,omitempty"` // of the median's interval
		High    *float64  `json:"high,omitempty"`
		P95     *float64  `json:"p95,omitempty"`
		Aim     float64   `json:"aim,omitempty"`
		Met     string    `json:"met,omitempty"`
		Failed  string    `json:"failed,omitempty"`
		Absent  string    `json:"absent,omitempty"`
		Samples []float64 `json:"samples"`
		Phases  []phase   `json:"phases,omitempty"`
	}{Group: r.Group, Name: r.Name, What: r.What, Unit: r.Unit, Higher: r.Higher, N: len(r.Samples),
		Aim: r.Aim, Met: r.AimMet(), Failed: r.Failed, Absent: r.Absent, Samples: append([]float64{}, r.Samples...)}
	if len(r.Samples) > 0 {
		median, p95 := r.Median(), r.P95()
		out.Median, out.P95 = &median, &p95
		if s := summarize(r.Samples); known(s) {
			out.Low, out.High = &s.Lo, &s.Hi
		}
	}
	for _, p := range r.Phases {
		out.Phases = append(out.Phases, phase{p.Name, summarize(p.Samples).Center, p.Samples})
	}
	return json.Marshal(out)
}

// number formats a figure with three significant digits.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
