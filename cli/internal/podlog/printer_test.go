package podlog

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func TestPrinter(t *testing.T) {
	say := func(pod, container, stream, data string) api.Log {
		return api.Log{Pod: pod, Container: container, Stream: stream, Data: []byte(data)}
	}
	at := func(second int, data string) api.Log {
		l := say("p", "c", "stdout", data)
		l.Time = time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC)
		return l
	}
	for _, tc := range []struct {
		name     string
		pods     map[string][]string
		colour   bool
		set      func(*Printer)
		logs     []api.Log
		out, err string
	}{
		{
			name: "one container: bytes as they are",
			pods: map[string][]string{"p": {"c"}},
			logs: []api.Log{say("p", "c", "stdout", "no end"), say("p", "c", "stderr", "\x00\xff\n")},
			out:  "no end", err: "\x00\xff\n",
		},
		{
			name: "two containers: lines under names of one width",
			pods: map[string][]string{"p": {"c", "longer"}},
			logs: []api.Log{
				say("p", "c", "stdout", "a"), say("p", "longer", "stdout", "x\ny\n"), say("p", "c", "stderr", "e\n"),
				say("p", "c", "stdout", "b\n"), say("p", "c", "stdout", "rest"), say("p", "c", "stderr", "rest"),
			},
			out: "longer | x\nlonger | y\nc      | ab\nc      | rest\n", err: "c      | e\nc      | rest\n",
		},
		{
			name: "two pods",
			pods: map[string][]string{"p": {"c"}, "q": {"c"}},
			logs: []api.Log{say("p", "c", "stdout", "1\n"), say("q", "c", "stdout", "2\n\n")},
			out:  "p/c | 1\nq/c | 2\nq/c | \n",
		},
		{
			name: "colours", colour: true,
			pods: map[string][]string{"p": {"a", "b"}},
			logs: []api.Log{say("p", "a", "stdout", "1\n"), say("p", "b", "stdout", "2\n")},
			out:  "\x1b[36ma |\x1b[0m 1\n\x1b[33mb |\x1b[0m 2\n",
		},
		{
			name: "times, of the beginning of each line", set: func(p *Printer) { p.Stamps = true },
			pods: map[string][]string{"p": {"c"}},
			logs: []api.Log{at(1, "a"), at(2, "b\nc\n"), at(3, "\n")},
			out:  "2026-01-02T03:04:01.000000000Z ab\n2026-01-02T03:04:02.000000000Z c\n2026-01-02T03:04:03.000000000Z \n",
		},
		{
			name: "names as kubectl's", set: func(p *Printer) { p.Full, p.Stamps = true, true },
			pods: map[string][]string{"p": {"c"}},
			logs: []api.Log{at(1, "a\n")},
			out:  "[pod/p/c] 2026-01-02T03:04:01.000000000Z a\n",
		},
		{
			name: "no names", set: func(p *Printer) { p.Bare = true },
			pods: map[string][]string{"p": {"a", "b"}},
			logs: []api.Log{say("p", "a", "stdout", "1\n"), say("p", "b", "stdout", "2\n")},
			out:  "1\n2\n",
		},
		{
			name: "a line without end is not kept for ever",
			pods: map[string][]string{"p": {"a", "b"}},
			logs: []api.Log{say("p", "a", "stdout", strings.Repeat("x", MaxLine+1))},
			out:  "a | " + strings.Repeat("x", MaxLine+1) + "\n",
		},
	} {
		var out, err bytes.Buffer
		p := New(&out, &err)
		p.colour = tc.colour
		if tc.set != nil {
			tc.set(p)
		}
		for _, pod := range []string{"p", "q"} {
			if tc.pods[pod] != nil {
				p.Add(pod, tc.pods[pod])
			}
		}
		for _, l := range tc.logs {
			if err := p.Print(l); err != nil {
				t.Fatal(err)
			}
		}
		p.Flush()
		if diff := cmp.Diff(tc.out+"|"+tc.err, out.String()+"|"+err.String()); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}

func TestNoColours(t *testing.T) {
	if tty.Colours(&bytes.Buffer{}) {
		t.Error("colours where there is no terminal")
	}
}
