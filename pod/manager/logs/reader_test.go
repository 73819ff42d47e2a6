package logs

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	podlogs "github.com/bulkhead-project/bulkhead/pod/logs"
)

func TestPrune(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"7.log", "8.log", "9.log", "10.log", "11.log", "8.log.1", "9.log.1", "other", "x.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Prune(dir); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range list {
		names = append(names, f.Name())
	}
	if got := len(names); got != 6 || names[0] != "10.log" || names[1] != "11.log" || names[2] != "9.log" || names[3] != "9.log.1" {
		t.Errorf("left: %v", names)
	}
	if err := Prune(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// TestOutput reads the newest log, the one before, and the ends of logs.
func TestOutput(t *testing.T) {
	dir := t.TempDir()
	line := func(second int, text string) string {
		return "2026-01-02T03:04:0" + strconv.Itoa(second) + ".000000000Z stdout " + text + "\n"
	}
	text := line(1, "F one") + line(2, "P two, ") + line(2, "F its end") + line(3, "F three") + "half"
	if err := os.WriteFile(filepath.Join(dir, "4.log"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		lines int64
		since time.Time
		want  string
	}{
		{-1, time.Time{}, "one\ntwo, its end\nthree\n"},
		{2, time.Time{}, "two, its end\nthree\n"},
		{0, time.Time{}, ""},
		{-1, time.Date(2026, 1, 2, 3, 4, 3, 0, time.UTC), "three\n"},
		{1, time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), "three\n"},
	} {
		got := ""
		r := New(dir, Options{Run: 4, Tail: tc.lines, Since: tc.since}, func(l Line) error { got += string(l.Data); return nil })
		if err := r.Drain(); err != nil || got != tc.want {
			t.Errorf("%d lines since %v: %q, %v, want %q", tc.lines, tc.since, got, err, tc.want)
		}
		r.Close()
	}
}

// TestOutputEnds: Drain with There reads a growing log only up to its initial end, also if the log is rotated
// meanwhile.
func TestOutputEnds(t *testing.T) {
	const line = "2026-01-02T03:04:05.000000000Z stdout F x\n"
	for _, anew := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "0.log")
		grow := func() {
			f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err == nil {
				_, err = f.WriteString(strings.Repeat(line, 2))
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for range 5 {
			grow()
		}
		read := 0
		l := New(filepath.Dir(path), Options{Tail: 3, There: true}, func(Line) error {
			read++
			if anew && read == 1 {
				if err := os.Rename(path, podlogs.Older(path)); err != nil {
					t.Fatal(err)
				}
			}
			grow()
			return nil
		})
		if err := l.Drain(); err != nil || read != 3 {
			t.Errorf("rotated %v: %d lines of 3, %v", anew, read, err)
		}
		l.Close()
	}
}

// TestOutputAcrossLogs reads a rotated log as a whole, its end, and during the rotation.
func TestOutputAcrossLogs(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "4.log")
	line := func(text string) string { return "2026-01-02T03:04:05.000000000Z stdout F " + text + "\n" }
	put := func(path, text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err == nil {
			_, err = f.WriteString(text)
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rotate := func() {
		t.Helper()
		if err := os.Rename(log, podlogs.Older(log)); err != nil {
			t.Fatal(err)
		}
	}
	got := ""
	out := func(l Line) error { got += string(l.Data); return nil }
	follower := New(dir, Options{Run: 4, Tail: -1}, out)
	defer follower.Close()
	drain := func(r *Reader, want string) {
		t.Helper()
		got = ""
		if err := r.Drain(); err != nil || got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	put(log, line("one")+line("two"))
	drain(follower, "one\ntwo\n")
	rotate()
	drain(follower, "")
	put(podlogs.Older(log), line("three")) // the shim has not been notified yet
	put(log, "")
	drain(follower, "three\n")
	put(podlogs.Older(log), line("four"))
	put(log, line("five"))
	drain(follower, "four\nfive\n")
	for lines, want := range map[int64]string{
		-1: "one\ntwo\nthree\nfour\nfive\n", 0: "", 1: "five\n", 2: "four\nfive\n", 4: "two\nthree\nfour\nfive\n",
		9: "one\ntwo\nthree\nfour\nfive\n",
	} {
		r := New(dir, Options{Run: 4, Tail: lines}, out)
		drain(r, want)
		r.Close()
	}
	rotate()
	drain(follower, "")
	put(log, line("six"))
	drain(follower, "six\n")
	rotate()
	put(log, line("seven"))
	rotate()
	put(log, line("eight")+strings.Repeat("x", 3*maxLine)) // our shims write no such line
	drain(follower, "seven\neight\n")
	if len(follower.part) > maxLine {
		t.Errorf("%d bytes are kept", len(follower.part))
	}
}
