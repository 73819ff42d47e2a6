package pacedlog

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestRepeatedLines: a repeated line is written a few times and then counted. Other lines are written beside it, and
// the count is written with the first line after a while.
func TestRepeatedLines(t *testing.T) {
	var out strings.Builder
	h := New(slog.NewTextHandler(&out, nil))
	now := time.Now()
	h.lines.now = func() time.Time { return now }
	h.lines.swept = now
	log := slog.New(h)
	pod := log.With("pod", "a")
	for i := range 24_000 {
		pod.Warn("a port is not published", "port", i)
	}
	if n := strings.Count(out.String(), "\n"); n != burst {
		t.Errorf("%d lines", n)
	}
	log.With("pod", "b").Warn("a port is not published", "port", 1)
	log.Warn("another")
	log.Warn("a port is not published", "pod", "c")
	if n := strings.Count(out.String(), "\n"); n != burst+3 {
		t.Errorf("%d lines with others", n)
	}
	out.Reset()
	now = now.Add(window)
	log.Warn("another")
	want := fmt.Sprintf("pod=a port=23999 more=%d", 24_000-burst)
	if got := out.String(); !strings.Contains(got, want) || strings.Count(got, "\n") != 2 {
		t.Errorf("later: %s", got)
	}
	out.Reset()
	pod.Warn("a port is not published", "port", 7)
	if !strings.Contains(out.String(), "port=7") {
		t.Errorf("with time the line is written again: %s", out.String())
	}
}

// TestKinds: the number of kinds with a bucket is bounded, and kinds that do not recur are dropped.
func TestKinds(t *testing.T) {
	var out strings.Builder
	h := New(slog.NewTextHandler(&out, nil))
	now := time.Now()
	h.lines.now = func() time.Time { return now }
	h.lines.swept = now
	log := slog.New(h)
	for i := range 2 * most {
		log.Info("x", "id", i)
	}
	if n := len(h.lines.kinds); n > most+1 {
		t.Errorf("%d kinds", n)
	}
	if n := strings.Count(out.String(), "\n"); n != most+burst {
		t.Errorf("%d lines", n)
	}
	for range 2 {
		now = now.Add(time.Minute)
		log.Info("y")
	}
	if n := len(h.lines.kinds); n > 2 {
		t.Errorf("%d kinds are left", n)
	}
}
