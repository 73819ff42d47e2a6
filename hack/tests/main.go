// Tests runs every test, as make test does: first all packages with -race and -short, which boots no VM,
// and then those tests that the first pass skipped, whole and without -race. A test that boots VMs skips
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

// run is both passes, and what they took.
func run(ctx context.Context, out io.Writer, tags string, packages []string) error {
	if len(packages) == 0 {
		packages = []string{"./..."}
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
		// Without cgo, as make builds the programs: most is compiled already.
		err = whole.goTest(ctx, []string{"CGO_ENABLED=0"}, append(args, quick.packages()...)...)
	}
	fmt.Fprintf(out, "first pass %d s, second pass %d s; the slowest packages:\n",
		int(first.Seconds()), int((time.Since(began) - first).Seconds()))
	for _, line := range slowest(10, reports...) {
		fmt.Fprintln(out, line)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("failed: %s", strings.Join(failed(reports...), " ")), err)
	}
	return nil
}

// slowest describes the packages whose tests took longest, both passes together.
func slowest(n int, reports ...*report) []string {
	took := map[string]float64{}
	for _, r := range reports {
		for name, p := range r.results {
			took[name] += p.seconds
		}
	}
	names := make([]string, 0, len(took))
	for name := range took {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(took[b], took[a]) })
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
