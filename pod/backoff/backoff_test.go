package backoff

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestBackoff follows one container through its ends, each at a time after the start of its run.
func TestBackoff(t *testing.T) {
	second, minute := time.Second, time.Minute
	tests := []struct {
		name string
		runs []time.Duration // the duration of each run
		want []time.Duration // the delays after them
	}{
		{name: "at once, then doubled to five minutes", runs: []time.Duration{1, 1, 1, 1, 1, 1, 1, 1, 1},
			want: []time.Duration{0, 10 * second, 20 * second, 40 * second, 80 * second, 160 * second, 300 * second, 300 * second, 300 * second}},
		{name: "a run of ten minutes changes nothing", runs: []time.Duration{1, 1, 10 * minute, 1},
			want: []time.Duration{0, 10 * second, 20 * second, 40 * second}},
		{name: "a longer run resets the delay", runs: []time.Duration{1, 1, 10*minute + 1, 1, 1},
			want: []time.Duration{0, 10 * second, 0, 10 * second, 20 * second}},
		{name: "after the longest delay too", runs: []time.Duration{1, 1, 1, 1, 1, 1, 1, 6 * minute, 1, 11 * minute, 1},
			want: []time.Duration{0, 10 * second, 20 * second, 40 * second, 80 * second, 160 * second, 300 * second, 300 * second, 300 * second,
				0, 10 * second}},
		{name: "long runs only", runs: []time.Duration{time.Hour, time.Hour, time.Hour}, want: []time.Duration{0, 0, 0}},
		{name: "five minutes at each run", runs: []time.Duration{5 * minute, 5 * minute, 5 * minute, 5 * minute},
			want: []time.Duration{0, 10 * second, 20 * second, 40 * second}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var b Backoff
			var got []time.Duration
			now := time.Unix(1_000_000, 0)
			for _, lasts := range test.runs {
				ended := now.Add(lasts)
				now = b.Until(ended)
				got = append(got, now.Sub(ended))
				b.Next(ended, now)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBackoffResumes(t *testing.T) {
	began := time.Unix(1000, 0)
	for restarts, want := range map[int32]time.Duration{0: 0, 1: 10 * time.Second, 2: 20 * time.Second, 5: 160 * time.Second,
		6: 5 * time.Minute, 1 << 30: 5 * time.Minute} {
		var b Backoff
		b.Resume(restarts, began, began.Add(time.Second))
		if got := b.Until(began.Add(time.Second)).Sub(began.Add(time.Second)); got != want {
			t.Errorf("after %d restarts %v, want %v", restarts, got, want)
		}
	}
	var b Backoff
	b.Resume(5, began, began.Add(11*time.Minute))
	if got := b.Until(began.Add(11 * time.Minute)).Sub(began.Add(11 * time.Minute)); got != 0 {
		t.Errorf("after a calm time %v", got)
	}
}
