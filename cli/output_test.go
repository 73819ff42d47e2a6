package cli

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func TestFormats(t *testing.T) {
	v := []api.Reaped{{Adopted: 1}}
	table := func(w io.Writer) error { _, err := io.WriteString(w, "table"); return err }
	for f, want := range map[format]string{
		"":     "table",
		"json": "[\n  {\n    \"adopted\": 1,\n    \"removed\": 0\n  }\n]\n",
		"yaml": "- adopted: 1\n  removed: 0\n",
	} {
		var w bytes.Buffer
		if err := f.print(&w, v, table); err != nil || w.String() != want {
			t.Errorf("%q: %q, %v", f, w.String(), err)
		}
	}
	for _, f := range []format{"xml", "JSON"} {
		if err := errors.Join(f.valid(), f.print(io.Discard, v, table)); err == nil || !strings.Contains(err.Error(), "json, yaml or") {
			t.Errorf("%q: %v", f, err)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1 kB", 1500: "1.5 kB", 999_600: "1 MB", 123_456_789: "123 MB",
		1_000_000_000_000: "1 TB", 5_000_000_000_000_000: "5e+03 TB",
	} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		3 * time.Second: "3s", 119 * time.Second: "119s", 5 * time.Minute: "5m", 47 * time.Hour: "47h", 72 * time.Hour: "3d",
	} {
		if got := age(time.Now().Add(-d)); got != want {
			t.Errorf("age of %v: %q", d, got)
		}
	}
	if got := age(time.Time{}); got != "<unknown>" {
		t.Errorf("no time: %q", got)
	}
}

func TestPsTable(t *testing.T) {
	pods := []api.Pod{
		{Name: "web", Namespace: "default", UID: "2e2e0289-eeb1-4", Ready: 1, Containers: 2, Status: "Running", Ports: []string{"127.0.0.1:8080->80"}, Accel: "tcg", Created: time.Now()},
		{Name: "db", Namespace: "default", UID: "short", Status: "Completed", Created: time.Now()},
	}
	for _, tc := range []struct{ namespace, want string }{
		{"default", "" +
			"NAME  READY  STATUS     RESTARTS  AGE  PORTS               ACCEL  UID\n" +
			"web   1/2    Running    0         0s   127.0.0.1:8080->80  tcg    2e2e0289-eeb\n" +
			"db    0/0    Completed  0         0s   -                   -      short\n"},
		{"other", "" +
			"NAMESPACE  NAME  READY  STATUS     RESTARTS  AGE  PORTS               ACCEL  UID\n" +
			"default    web   1/2    Running    0         0s   127.0.0.1:8080->80  tcg    2e2e0289-eeb\n" +
			"other      db    0/0    Completed  0         0s   -                   -      short\n"},
	} {
		pods[1].Namespace = tc.namespace
		var w bytes.Buffer
		if err := psTable(&w, pods, false); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, w.String()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestFold(t *testing.T) {
	for _, tc := range []struct {
		width, indent int
		want          string
	}{
		{0, 4, "one two  three four five six seven"},
		{34, 4, "one two three four five six\n    seven"},
		{24, 4, "one two three four\n    five six seven"},
		{20, 4, "one two  three four five six seven"}, // no room to fold in
	} {
		if got := fold("one two  three four five six seven", tc.width, tc.indent); got != tc.want {
			t.Errorf("width %d: %q", tc.width, got)
		}
	}
}
