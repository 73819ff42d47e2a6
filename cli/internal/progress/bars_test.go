package progress

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

const blob = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestBar(t *testing.T) {
	for _, tc := range []struct {
		name  string
		p     api.Progress
		width int
		want  string
	}{
		{"half", api.Progress{Blob: blob, Total: 2e6, Done: 1e6}, 60, "  0123456789ab [========         ]     1 MB / 2 MB    "},
		{
			"done", api.Progress{Blob: blob, Total: 2e6, Done: 2e6, State: "done"}, 60,
			"  0123456789ab [=================]     2 MB / 2 MB     done",
		},
		{"more than said", api.Progress{Blob: blob, Total: 1, Done: 2e6}, 60, "  0123456789ab [=================]     2 MB / 1 B     "},
		{"unknown size", api.Progress{Blob: blob, Done: 1500}, 60, "  0123456789ab    1.5 kB"},
		{"narrow", api.Progress{Blob: blob, Total: 2e6, Done: 1e6}, 20, "  0123456789ab     "},
		{"no width", api.Progress{Blob: blob, Total: 2e6, Done: 1e6}, 0, ""},
	} {
		got := bar(tc.p, tc.width)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
		if len(got) >= max(1, tc.width) && got != "" {
			t.Errorf("%s: %d columns of %d", tc.name, len(got), tc.width)
		}
	}
	if got := bar(api.Progress{Blob: blob, Total: 1, Done: 1}, 500); len(got) > 100 {
		t.Errorf("%d columns on a wide terminal", len(got))
	}
}

func TestBarsWithoutTerminal(t *testing.T) {
	updates := []api.Progress{
		{Image: "a", Blob: blob, Total: 10, Done: 5}, {Image: "a", Blob: blob, Total: 10, Done: 10, State: "done"},
		{Image: "a", Blob: blob, Total: 10, Done: 10, State: "done"},
	}
	for quiet, want := range map[bool]string{false: "a: done 0123456789ab 10 B\n", true: ""} {
		var w bytes.Buffer
		b := New(&w, quiet)
		for _, p := range updates {
			b.Update(p)
		}
		b.Close()
		if w.String() != want {
			t.Errorf("quiet %v: %q", quiet, w.String())
		}
	}
}

// On a terminal, each drawing begins where the last one did. At the end nothing is left.
func TestBarsOnTerminal(t *testing.T) {
	var w bytes.Buffer
	b := New(&w, false)
	b.live = true
	b.Update(api.Progress{Image: "a", Blob: blob, Total: 10})
	b.Update(api.Progress{Image: "a", Blob: "sha256:fedc", Total: 10})
	b.Update(api.Progress{Image: "a", Blob: "sha256:fedc", Total: 10, Done: 1}) // too soon
	b.Close()
	got := w.String()
	if n := strings.Count(got, "\x1b[2A"); n != 1 || !strings.HasSuffix(got, "\x1b[3A\x1b[J") {
		t.Errorf("%q", got)
	}
	b.Close()
	if w.String() != got {
		t.Error("a second close wrote something")
	}
}
