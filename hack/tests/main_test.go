package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// feed gives a report events, one on each line: action, package, test ("-" for none), seconds, output.
func feed(t *testing.T, r *report, events string) {
	t.Helper()
	for line := range strings.Lines(events) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 4)
		e := event{Action: f[0], Package: f[1], Test: strings.TrimPrefix(f[2], "-")}
		if len(f) > 3 {
			if e.Action == "output" {
				e.Output = f[3] + "\n"
			} else if err := json.Unmarshal([]byte(f[3]), &e.Elapsed); err != nil {
				t.Fatal(err)
			}
		}
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		r.processLine(b)
	}
}

// TestSecondPass: it runs each test completely that skipped anything.
func TestSecondPass(t *testing.T) {
	r := newReport(&bytes.Buffer{})
	feed(t, r, `pass a TestQuick 0
		skip a TestVM 0
		pass a - 1.5
		skip b/e2e TestTable/a_VM/deep 0.5
		pass b/e2e TestTable/none 1
		pass b/e2e TestTable 1.5
		pass b/e2e - 2
		pass c TestQuick 0
		pass c - 3`)
	if got, want := r.tests(), "^(TestTable|TestVM)$"; got != want {
		t.Errorf("-run %s, not %s", got, want)
	}
	if got := r.packages(); !slices.Equal(got, []string{"b/e2e", "a"}) {
		t.Errorf("packages %v", got)
	}
	packages, tests := times(r, r)
	if got, want := slowest(2, packages), []string{"    6.0 s  c", "    4.0 s  b/e2e"}; !slices.Equal(got, want) {
		t.Errorf("slowest packages %q", got)
	}
	want := []string{"    2.0 s  b/e2e TestTable/none", "    1.0 s  b/e2e TestTable/a_VM/deep"}
	if got := slowest(2, tests); !slices.Equal(got, want) {
		t.Errorf("slowest tests %q", got)
	}
}

// TestOutput: for a package that fails, it prints the output of failing and unfinished tests.
func TestOutput(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out)
	feed(t, r, `output a TestGood chatter
		output b - noise
		output b TestBad before
		output b TestGood chatter
		output b TestBad it is broken
		fail b TestBad 0
		pass b TestGood 0
		output b TestHangs the deadline
		output b - FAIL
		pass a TestGood 0
		output a - PASS
		output a - ok  	a	0.1s
		pass a - 0.1
		fail b - 2
		skip c - 0`)
	r.processLine([]byte(`{"ImportPath":"d","Action":"build-output","Output":"d.go:1: syntax error\n"}`))
	r.processLine([]byte("not of test2json\n"))
	want := "ok  	a	0.1s\nbefore\nit is broken\nthe deadline\nnoise\nFAIL\nd.go:1: syntax error\nnot of test2json\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	if got := failed(r); !slices.Equal(got, []string{"b"}) {
		t.Errorf("failed: %v", got)
	}
}
