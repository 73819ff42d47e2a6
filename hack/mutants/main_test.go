package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestJudge: unnoticed faults count, unless their line is excused. An excuse without a survivor is reported.
func TestJudge(t *testing.T) {
	known, err := parseExcused("# why\n\na/b/x.go | CONDITIONALS_BOUNDARY | if a > 0 | b { | both mean the same\n" +
		"a/b/x.go | ARITHMETIC_BASE | gone + 1 | a reason\nother/y.go | ARITHMETIC_BASE | x + 1 | a reason\n")
	if err != nil || len(known) != 3 {
		t.Fatal(known, err)
	}
	var r report
	r.Files = append(r.Files, struct {
		Name      string  `json:"file_name"`
		Mutations []fault `json:"mutations"`
	}{"x.go", []fault{
		{Type: "CONDITIONALS_BOUNDARY", Status: "LIVED", Line: 2, Column: 5},
		{Type: "CONDITIONALS_NEGATION", Status: "LIVED", Line: 2, Column: 5},
		{Type: "CONDITIONALS_NEGATION", Status: "NOT COVERED", Line: 1, Column: 1},
		{Type: "CONDITIONALS_NEGATION", Status: "NOT COVERED", Line: 3, Column: 7},
		{Type: "CONDITIONALS_NEGATION", Status: "KILLED", Line: 1, Column: 1},
		{Type: "CONDITIONALS_NEGATION", Status: "TIMED OUT", Line: 1, Column: 1},
		{Type: "CONDITIONALS_NEGATION", Status: "NOT VIABLE", Line: 1, Column: 1},
	}})
	s, err := r.judge("a/b", known, func(path string) ([]byte, error) {
		if path != "a/b/x.go" {
			return nil, os.ErrNotExist
		}
		return []byte("package x\n\tif a > 0 | b {\n\tcase a == b:\n"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.noticed != 2 || s.excused != 1 || s.untried != 1 || len(s.survivors) != 2 || len(s.stale) != 1 || s.stale[0].line != "gone + 1" {
		t.Errorf("%+v", s)
	}
	if s.percent() != 50 || s.verdict() == nil {
		t.Errorf("%d %%, %v", s.percent(), s.verdict())
	}
	for _, want := range []string{"a/b/x.go:2:5: lived: CONDITIONALS_NEGATION: if a > 0 | b {", "no survivor any more", "50 %: 2 of 4"} {
		if !strings.Contains(s.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, s)
		}
	}
	if (score{}).verdict() == nil || (score{noticed: 85, survivors: make([]string, 15)}).verdict() != nil {
		t.Error("the verdict is wrong")
	}
}

// TestWrapGo: gremlins' command for the module's root becomes one for the working directory, and other commands
// stay the same.
func TestWrapGo(t *testing.T) {
	dir := t.TempDir()
	path, err := wrapGo(dir)
	if err != nil || !strings.HasPrefix(path, dir+":") {
		t.Fatal(path, err)
	}
	for arg, want := range map[string]string{module: module + "/hack/mutants", module + "/api/agent/v1": module + "/api/agent/v1"} {
		cmd := exec.Command(dir+"/go", "list", arg)
		if got, err := cmd.Output(); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: %s, %v, want %s", arg, got, err, want)
		}
	}
}

func TestParseExcusedWantsReasons(t *testing.T) {
	for _, text := range []string{"a.go", "a.go | F", "a.go | F | line", "a.go | F | line | ", "a.go | F | line |"} {
		if got, err := parseExcused(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestExcusedHolds: each excuse quotes an existing line.
func TestExcusedHolds(t *testing.T) {
	b, err := os.ReadFile("excused.txt")
	if err != nil {
		t.Fatal(err)
	}
	known, err := parseExcused(string(b))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range known {
		source, err := os.ReadFile("../../" + e.path)
		if err != nil || !strings.Contains(string(source), e.line) {
			t.Errorf("%s has no line %q: %v", e.path, e.line, err)
		}
	}
}

// TestAlone: a faulty test can kill only its own processes.
func TestAlone(t *testing.T) {
	out, err := alone("sh", "-c", "echo $$; ls -d /proc/[0-9]* | wc -l").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(out)); len(got) != 2 || got[0] != "1" || len(got[1]) != 1 {
		t.Errorf("it sees other processes: %q", out)
	}
}
