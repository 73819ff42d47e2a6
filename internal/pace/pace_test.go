package pace

import (
	"testing"
	"time"
)

// TestPace: the expected time is the slowest of the latest ones, under the present load.
func TestPace(t *testing.T) {
	var p Pace
	if got := p.Expect(3); got != 0 {
		t.Errorf("without times, %v are expected", got)
	}
	p.Observe(8*time.Second, 4) // two, on a busy host
	p.Observe(time.Second, 1)
	if quiet, busy := p.Expect(1), p.Expect(3); quiet != 2*time.Second || busy != 6*time.Second {
		t.Errorf("%v are expected on a quiet host and %v on a busy one", quiet, busy)
	}
	for range remembered - 1 {
		p.Observe(time.Second, 1)
	}
	if got := p.Expect(1); got != time.Second {
		t.Errorf("%v are expected: old times count", got)
	}
}

func TestLoad(t *testing.T) {
	for _, c := range []struct {
		line string
		cpus int
		want float64
	}{
		{"0.20 0.18 0.12 3/80 11206\n", 1, 3},
		{"0.20 0.18 0.12 12/80 11206\n", 8, 1.5},
		{"0.20 0.18 0.12 1/80 11206\n", 8, 1},
		{"", 2, 1},
		{"0.20 0.18 0.12 many/80 11206\n", 2, 1},
	} {
		if got := load(c.line, c.cpus); got != c.want {
			t.Errorf("%q on %d processors is %v, not %v", c.line, c.cpus, got, c.want)
		}
	}
	if got := Load(); got < 1 {
		t.Errorf("this host's load is %v", got)
	}
}

// TestSlowness: a usual host has 1 and an emulated one more, and deadlines follow.
func TestSlowness(t *testing.T) {
	for took, want := range map[time.Duration]float64{
		0:                           1,
		pages * usualPage / 2:       1,
		pages * usualPage * 5:       5,
		pages * usualPage * 1000000: mostSlowness,
	} {
		if got := slowness(took); got != want {
			t.Errorf("%v for %d pages: %v times as slow, not %v", took, pages, got, want)
		}
	}
	want := time.Duration(Slowness() * float64(time.Minute))
	if got := Stretch(time.Minute); got != want || got < time.Minute || got > mostSlowness*time.Minute {
		t.Errorf("a minute becomes %v", got)
	}
	if _, err := touch(); err != nil {
		t.Error(err)
	}
}
