// Tests runs every test, as make test does. The first pass runs all packages with -race and -short, and boots no VM.
// The second pass runs the tests that the first pass skipped, completely and without -race. A test that boots VMs skips
// itself with -short, so that each test runs in exactly one pass.
//
//	go run ./hack/tests TAGS [PACKAGE…]
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := run(context.Background(), os.Stdout, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "tests:", err)
		os.Exit(1)
	}
}

// run runs both passes, and reports their durations.
func run(ctx context.Context, out io.Writer, tags string, packages []string) error {
	if len(packages) == 0 {
		packages = []string{"./...", "./tools/bench/..."}
	}
	began := time.Now()
	quick := newReport(out)
	err := quick.goTest(ctx, nil, append([]string{"-tags", tags, "-race", "-short", "-timeout", "20m"}, packages...)...)
	first := time.Since(began)
	reports := []*report{quick}
	if err == nil && len(quick.skipped) > 0 {
		whole := newReport(out)
		reports = append(reports, whole)
		args := []string{"-tags", tags, "-vet=off", "-count=1", "-p", "2", "-parallel", "2", "-timeout", "40m", "-run", quick.tests()}
		// Without cgo, as make builds the programs: most packages are compiled already.
		err = whole.goTest(ctx, []string{"CGO_ENABLED=0"}, append(args, quick.packages()...)...)
	}
	fmt.Fprintf(out, "first pass %d s, second pass %d s\n", int(first.Seconds()), int((time.Since(began) - first).Seconds()))
	byPackage, byTest := times(reports...)
	fmt.Fprintln(out, "the slowest packages:\n"+strings.Join(slowest(10, byPackage), "\n"))
	fmt.Fprintln(out, "the slowest tests:\n"+strings.Join(slowest(20, byTest), "\n"))
	if err != nil {
		return errors.Join(fmt.Errorf("failed: %s", strings.Join(failed(reports...), " ")), err)
	}
	return nil
}

// times returns the durations of packages and of tests, both passes together.
func times(reports ...*report) (packages, tests map[string]float64) {
	packages, tests = map[string]float64{}, map[string]float64{}
	for _, r := range reports {
		for name, p := range r.results {
			packages[name] += p.seconds
			for test, seconds := range p.tests {
				tests[name+" "+test] += seconds
			}
		}
	}
	return packages, tests
}

// slowest describes the n entries that took longest.
func slowest(n int, took map[string]float64) []string {
	names := slices.Sorted(maps.Keys(took))
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(took[b], took[a]) })
	lines := make([]string, 0, n)
	for _, name := range names[:min(n, len(names))] {
		lines = append(lines, fmt.Sprintf("%7.1f s  %s", took[name], name))
	}
	return lines
}

// failed lists the packages that failed.
func failed(reports ...*report) (names []string) {
	for _, r := range reports {
		for name, p := range r.results {
			if p.failed {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}
