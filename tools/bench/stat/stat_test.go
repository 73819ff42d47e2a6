package stat

import (
	"math"
	"testing"
)

func TestSums(t *testing.T) {
	twenty := []float64{20, 1, 19, 2, 18, 3, 17, 4, 16, 5, 15, 6, 14, 7, 13, 8, 12, 9, 11, 10}
	for name, tc := range map[string]struct {
		got, want float64
	}{
		"median of one":     {Median([]float64{3}), 3},
		"median of two":     {Median([]float64{4, 1}), 2.5},
		"median of three":   {Median([]float64{9, 1, 5}), 5},
		"median of twenty":  {Median(twenty), 10.5},
		"p95 of one":        {Percentile([]float64{7}, 95), 7},
		"p95 of two":        {Percentile([]float64{7, 1}, 95), 7},
		"p95 of twenty":     {Percentile(twenty, 95), 19},
		"p5 of twenty":      {Percentile(twenty, 5), 1},
		"p0 of twenty":      {Percentile(twenty, 0), 1},
		"p100 of twenty":    {Percentile(twenty, 100), 20},
		"median of nothing": {Median(nil), math.NaN()},
		"p95 of nothing":    {Percentile(nil, 95), math.NaN()},
	} {
		if tc.got != tc.want && !(math.IsNaN(tc.got) && math.IsNaN(tc.want)) {
			t.Errorf("%s: %v instead of %v", name, tc.got, tc.want)
		}
	}
	if twenty[0] != 20 {
		t.Error("the samples were reordered")
	}
}
