// Package testturn runs long tests in turns, by day, so that each runs often and all together take the time of a few.
package testturn

import (
	"flag"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Most is the most days that a whole test may wait for its turn.
const Most = 4

// Day returns the number of the day. BULKHEAD_TEST_SAMPLE replaces it.
func Day() int {
	if n, err := strconv.Atoi(os.Getenv("BULKHEAD_TEST_SAMPLE")); err == nil && n >= 0 {
		return n
	}
	return int(time.Now().Unix() / 86400)
}

// Long reports whether all tests must run, as in make test-long.
func Long() bool { return os.Getenv("BULKHEAD_TEST_LONG") != "" }

// SkipUnless skips the test unless it is its turn: each of the given number of days is the turn of the tests with one
// number, counted from 0. A test that -run names always runs.
func SkipUnless(t *testing.T, turn, days int) {
	t.Helper()
	if turn < 0 || turn >= days || days > Most {
		t.Fatalf("turn %d of %d: there may be %d", turn, days, Most)
	}
	run := flag.Lookup("test.run").Value.String()
	if left := wait(turn, days, Day()); left > 0 && !Long() && !named(run, t.Name()) {
		t.Skipf("its turn comes in %d days; BULKHEAD_TEST_SAMPLE=%d is such a day", left, Day()+left)
	}
}

// wait returns the number of days until a turn.
func wait(turn, days, day int) int { return (turn - day%days + days) % days }

// named reports whether -run selects this test, or a part of a test.
func named(run, name string) bool {
	top, _, _ := strings.Cut(name, "/")
	return strings.Contains(run, "/") || strings.Trim(run, "^$") == top
}

// In returns a test that takes turns like SkipUnless.
func In(turn, days int, test func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) {
		SkipUnless(t, turn, days)
		test(t)
	}
}
