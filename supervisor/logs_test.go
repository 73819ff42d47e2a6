package supervisor

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/supervisor/api"
)

func TestDropLogs(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"7.log", "8.log", "9.log", "10.log", "11.log", "other", "x.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := dropLogs(dir); err != nil {
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
	if got := len(names); got != 5 || names[0] != "10.log" || names[1] != "11.log" || names[2] != "9.log" {
		t.Errorf("left: %v", names)
	}
	if err := dropLogs(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// TestLogQuery reads what a client of ours writes.
func TestLogQuery(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("x", 3600))
	o, err := parseOutput(api.LogOptions{Follow: true, Previous: true, Tail: 7, Since: since}.Query())
	if err != nil || !o.follow || !o.previous || o.tail != 7 || !o.since.Equal(since) || o.whole {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = parseOutput(url.Values{}); err != nil || o.tail != -1 || !o.since.IsZero() {
		t.Errorf("%+v, %v", o, err)
	}
	for key, bad := range map[string]string{"tail": "many", "since": "yesterday"} {
		if _, err := parseOutput(url.Values{key: {bad}}); !errors.Is(err, api.ErrInvalid) {
			t.Errorf("%s=%s: %v", key, bad, err)
		}
	}
}

// TestOutput reads log files as logs does: the newest, the one before, the end.
func TestOutput(t *testing.T) {
	dir := t.TempDir()
	line := func(second int, text string) string {
		return "2026-01-02T03:04:0" + strconv.Itoa(second) + ".000000000Z stdout " + text + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "4.log"), []byte(line(1, "F one")+line(2, "P two, ")+line(2, "F its end")+line(3, "F three")+"half"), 0o600); err != nil {
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
		r := &tail{dir: dir, n: 4, lines: tc.lines, since: tc.since, out: func(m api.Message) error { got += string(m.Log.Data); return nil }}
		if err := r.drain(); err != nil || got != tc.want {
			t.Errorf("%d lines since %v: %q, %v, want %q", tc.lines, tc.since, got, err, tc.want)
		}
		r.close()
	}
}
