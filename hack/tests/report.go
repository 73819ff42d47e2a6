package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

// report is one run of go test -json.
type report struct {
	out     io.Writer
	results map[string]*result         // by package
	skipped map[string]map[string]bool // top-level tests that skipped something, by package
}

// result is the result of one package.
type result struct {
	seconds float64
	failed  bool
	// tests has the duration of each test without subtests.
	tests map[string]float64
	// output of each test that has not passed, in the order of the first lines.
	output map[string]*strings.Builder
	order  []string
}

// event is of go tool test2json, or of a build.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

func newReport(out io.Writer) *report {
	return &report{out: out, results: map[string]*result{}, skipped: map[string]map[string]bool{}}
}

// goTest runs go test and prints a line for each package and the output of each test that fails.
func (r *report) goTest(ctx context.Context, env []string, args ...string) error {
	// Trim paths of this tree, so that go can reuse compiled packages and results of another clone.
	cmd := exec.CommandContext(ctx, cmp.Or(os.Getenv("GO"), "go"), append([]string{"test", "-json", "-trimpath", "-ldflags=-w"}, args...)...)
	cmd.Env = append(os.Environ(), append(env, testgo.Tree+"="+tree(ctx))...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for lines := bufio.NewReader(stdout); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.processLine(line)
		}
		if err != nil {
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}

// tree returns a hash of all files of the tree. Without git it is empty, and tests that depend on it cannot be
// cached.
func tree(ctx context.Context) string {
	const list = `git ls-files -co --exclude-standard -z | sort -z | xargs -0 sha256sum -- 2>/dev/null`
	files, err := exec.CommandContext(ctx, "bash", "-c", list).Output()
	if len(files) == 0 {
		return fmt.Sprint(os.Getpid(), err)
	}
	sum := sha256.Sum256(files)
	return hex.EncodeToString(sum[:8])
}

// processLine processes a line of go test -json.
func (r *report) processLine(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		_, _ = r.out.Write(line)
		return
	}
	if e.Action == "build-output" {
		fmt.Fprint(r.out, e.Output)
	}
	if e.Package == "" {
		return
	}
	p := r.results[e.Package]
	if p == nil {
		p = &result{output: map[string]*strings.Builder{}, tests: map[string]float64{}}
		r.results[e.Package] = p
	}
	switch e.Action {
	case "output":
		p.add(e.Test, e.Output)
	case "pass", "skip", "fail":
		if e.Test == "" {
			p.seconds, p.failed = e.Elapsed, e.Action == "fail"
			p.print(r.out)
			return
		}
		if e.Action != "fail" {
			delete(p.output, e.Test)
		}
		p.time(e.Test, e.Elapsed)
		if e.Action == "skip" {
			r.skip(e.Package, e.Test)
		}
	}
}

// skip records a test that must run completely.
func (r *report) skip(pkg, test string) {
	top, _, _ := strings.Cut(test, "/")
	if r.skipped[pkg] == nil {
		r.skipped[pkg] = map[string]bool{}
	}
	r.skipped[pkg][top] = true
}

// tests returns a pattern for the tests that skipped something.
func (r *report) tests() string {
	all := map[string]bool{}
	for _, names := range r.skipped {
		maps.Copy(all, names)
	}
	return "^(" + strings.Join(slices.Sorted(maps.Keys(all)), "|") + ")$"
}

// packages returns the packages that skipped tests, in their start order. A long package that starts last would run
// alone.
func (r *report) packages() []string {
	names := slices.Sorted(maps.Keys(r.skipped))
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return names
}

// rank orders packages that take long. e2e/node and e2e/kube mostly wait, so one of the others computes beside
// each.
func rank(name string) int {
	order := []string{"/e2e/node", "/e2e", "/e2e/clients", "/e2e/cri", "/e2e/hosts", "/engine", "/e2e/kube", "/cli"}
	for i, long := range order {
		if strings.HasSuffix(name, long) {
			return i
		}
	}
	return len(order)
}

// time records the duration of a test. Parents end after their subtests and are left out, because their duration is
// that of the subtests.
func (p *result) time(test string, seconds float64) {
	for whole := range p.tests {
		if strings.HasPrefix(whole, test+"/") {
			return
		}
	}
	p.tests[test] = seconds
}

func (p *result) add(test, text string) {
	b := p.output[test]
	if b == nil {
		b = &strings.Builder{}
		p.output[test] = b
		p.order = append(p.order, test)
	}
	b.WriteString(text)
}

// print writes the package's own lines. If it failed, it also writes the output of tests that did not pass.
func (p *result) print(out io.Writer) {
	if p.failed {
		for _, test := range p.order {
			if b := p.output[test]; b != nil && test != "" {
				fmt.Fprint(out, b)
			}
		}
	}
	if b := p.output[""]; b != nil {
		for line := range strings.Lines(b.String()) {
			if p.failed || strings.HasPrefix(line, "ok  ") {
				fmt.Fprint(out, line)
			}
		}
	}
	clear(p.output)
}
