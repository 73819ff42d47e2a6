package testturn

import (
	"flag"
	"testing"
)

// TestTurns: each day is the turn of one number, and none waits longer than there are numbers.
func TestTurns(t *testing.T) {
	for days := 1; days <= Most; days++ {
		for day := range 10 {
			turns := 0
			for turn := range days {
				left := wait(turn, days, day)
				if left == 0 {
					turns++
				}
				if left < 0 || left >= days || wait(turn, days, day+left) != 0 {
					t.Errorf("turn %d of %d, day %d: it waits %d days", turn, days, day, left)
				}
			}
			if turns != 1 {
				t.Errorf("day %d of %d: %d numbers have their turn", day, days, turns)
			}
		}
	}
}

// TestTake: a test is skipped on another's day, unless everything runs.
func TestTake(t *testing.T) {
	t.Setenv("BULKHEAD_TEST_LONG", "")
	t.Setenv("BULKHEAD_TEST_SAMPLE", "8")
	ran := map[string]bool{}
	try := func(name string, turn int) {
		t.Run(name, func(t *testing.T) {
			SkipUnless(t, turn, 3)
			ran[name] = true
		})
	}
	try("another", 1)
	try("its own", 2)
	t.Setenv("BULKHEAD_TEST_LONG", "1")
	try("long", 1)
	if !ran["its own"] || !ran["long"] || ran["another"] && !named(flag.Lookup("test.run").Value.String(), "TestTake") {
		t.Errorf("run: %v", ran)
	}
}

// TestNamed: -run asks for a test by its name alone, or for a part of it.
func TestNamed(t *testing.T) {
	for run, want := range map[string]bool{
		"": false, "TestSoak": true, "^TestSoak$": true, "^(TestSoak|TestKill)$": false, "TestKubelet/.*/volumes": true, "Test": false,
	} {
		if named(run, "TestSoak/sub") != want {
			t.Errorf("-run %q: %v", run, !want)
		}
	}
}
