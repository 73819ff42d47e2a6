// Package stat computes statistics of samples.
package stat

import (
	"math"
	"slices"
)

// Median returns the middle sample, or the mean of the two in the middle. It is NaN without samples.
func Median(samples []float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(samples))
	mid := len(s) / 2
	if len(s)%2 == 1 {
		return s[mid]
	}
	return (s[mid-1] + s[mid]) / 2
}

// Percentile returns the smallest sample that at least percent of the samples do not exceed (the nearest rank). It
// is NaN without samples.
func Percentile(samples []float64, percent float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(percent / 100 * float64(len(s))))
	return s[min(max(rank, 1), len(s))-1]
}
