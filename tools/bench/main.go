// Command bench measures Bulkhead: `make bench` runs it with the programs in
// bin/. It prints a table and writes bench.json, and leaves nothing behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/alone"
	"github.com/bulkhead-project/bulkhead/tools/bench/procs"
	"github.com/bulkhead-project/bulkhead/tools/bench/report"
	"github.com/bulkhead-project/bulkhead/tools/bench/rows"
)

// closeTimeout bounds the cleanup.
const closeTimeout = 5 * time.Minute

type options struct {
	runs, pods                        int
	window                            time.Duration
	rows, bin, against, image, reader string
	worker, module, out               string
	quiet                             bool
}

func main() {
	var o options
	var known []string
	for _, g := range rows.Groups() {
		known = append(known, fmt.Sprintf("%s (%s)", g.Name, g.About))
	}
	flag.IntVar(&o.runs, "runs", 20, "samples of each row")
	flag.IntVar(&o.pods, "pods", 50, "idle pods of the group idle, and the most pods that the group burst starts at once, up to 50")
	flag.DurationVar(&o.window, "window", time.Minute, "duration of a sample of the group sustained")
	flag.StringVar(&o.rows, "rows", "", "groups of rows to measure, separated by commas (default all): "+strings.Join(known, ", "))
	flag.StringVar(&o.bin, "bin", "bin", "directory of the programs, with the guest bundle in guest/")
	flag.StringVar(&o.against, "against", "",
		"directory of another build's programs, or a checkout with bin/, to measure in turns with -bin")
	flag.StringVar(&o.image, "image", "build/busybox.tar", "archive of the busybox image")
	flag.StringVar(&o.reader, "reader", "build/tools/diskread", "program that reads disks in a container")
	flag.StringVar(&o.worker, "worker", "build/tools/filework", "program that works with files in shared directories")
	flag.StringVar(&o.module, "module", "build/kernel/modules/kernel/fs/fuse/virtiofs.ko", "kernel module of the guest for virtiofsd")
	flag.StringVar(&o.out, "out", "bench.json", "file to write all samples to, empty for none")
	flag.BoolVar(&o.quiet, "quiet", false, "do not print progress to stderr")
	flag.Parse()
	groups, err := selected(o.rows)
	if err == nil && groups[0].Alone {
		err = alone.Enter()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: "+err.Error())
		os.Exit(1)
	}
	code, err := procs.Keep(func() int {
		if err := bench(o); err != nil {
			fmt.Fprintln(os.Stderr, "bench: "+err.Error())
			return 1
		}
		return 0
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: "+err.Error())
	}
	os.Exit(code)
}

// bench measures, prints the report and cleans up, also after an interrupt.
func bench(o options) (err error) {
	groups, err := selected(o.rows)
	if err != nil {
		return err
	}
	if o.runs < 1 || o.pods < 2 || o.window <= 0 {
		return errors.New("-runs must be at least 1, -pods at least 2 and -window more than 0")
	}
	b := &rows.Bench{
		Runs: o.runs, Pods: o.pods, Window: o.window, Report: &report.Report{Facts: report.Host(o.runs), Left: []string{}},
		Progress: func(what string) {
			if !o.quiet {
				fmt.Fprintf(os.Stderr, "bench: %s %s\n", time.Now().Format(time.TimeOnly), what)
			}
		},
	}
	if err := paths(b, o); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// Short, because sockets lie below it, and traversable, because pods run as their own users.
	if b.Dir, err = os.MkdirTemp("/tmp", "bb"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.Dir)) }()
	if err := os.Chmod(b.Dir, 0o755); err != nil {
		return err
	}
	began := time.Now()
	before, err := procs.Others()
	if err != nil {
		return err
	}
	measured := measure(ctx, b, groups)
	stop() // the next Ctrl-C ends even the cleanup
	b.Progress("clear up")
	cleaning, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	b.Report.Left = append(b.Report.Left, b.Close(cleaning)...)
	took := time.Since(began)
	b.Report.Facts.Took = took
	if after, err := procs.Others(); err == nil {
		b.Report.Facts.Others = float64(after-before) / procs.TicksPerSecond / took.Seconds() * 100
	}
	b.Report.Print(os.Stdout)
	if o.out != "" {
		measured = errors.Join(measured, b.Report.WriteJSON(o.out))
	}
	if measured == nil && b.Report.Failed() {
		return errors.New("some rows failed or something was left behind, see above")
	}
	return measured
}

func measure(ctx context.Context, b *rows.Bench, groups []rows.Group) error {
	if err := b.Facts(ctx); err != nil {
		return err
	}
	var errs []error
	for _, g := range groups {
		err := g.Measure(ctx, b)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("measure %s: %w", g.Name, err))
			b.Progress(errs[len(errs)-1].Error())
		}
	}
	return errors.Join(errs...)
}

// selected returns the named groups. An empty list selects all groups that need not be measured alone.
func selected(names string) ([]rows.Group, error) {
	all := rows.Groups()
	if names == "" {
		return slices.DeleteFunc(all, func(g rows.Group) bool { return g.Alone }), nil
	}
	wanted := strings.FieldsFunc(names, func(r rune) bool { return r == ',' || r == ' ' })
	var known []string
	for _, g := range all {
		known = append(known, g.Name)
	}
	for _, name := range wanted {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("there is no group %q: choose from %s", name, strings.Join(known, ", "))
		}
	}
	all = slices.DeleteFunc(all, func(g rows.Group) bool { return !slices.Contains(wanted, g.Name) })
	if len(all) > 1 && slices.ContainsFunc(all, func(g rows.Group) bool { return g.Alone }) {
		return nil, fmt.Errorf("one of the groups %s must be measured alone", names)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no group %q", names)
	}
	return all, nil
}

// paths makes the given paths absolute and checks that they exist.
func paths(b *rows.Bench, o options) error {
	abs := func(path string, must ...string) (string, error) {
		path, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		for _, name := range append(must, "") {
			if _, err := os.Stat(filepath.Join(path, name)); err != nil {
				return "", fmt.Errorf("%w (make bench builds missing files)", err)
			}
		}
		return path, nil
	}
	bin, err := abs(o.bin, "bulkhead", "bulkhead-engine", "bulkhead-shim", "guest/bundle.json")
	if err != nil {
		return err
	}
	b.Builds = []rows.Build{{Bin: bin}}
	if o.against != "" {
		if _, err := os.Stat(filepath.Join(o.against, "bin", "bulkhead")); err == nil {
			o.against = filepath.Join(o.against, "bin")
		}
		other, err := abs(o.against, "bulkhead", "bulkhead-shim", "guest/bundle.json")
		if err != nil {
			return err
		}
		b.Builds = append(b.Builds, rows.Build{Bin: other, Mark: "against"})
	}
	if b.Image, err = abs(o.image); err != nil {
		return err
	}
	for path, to := range map[string]*string{o.reader: &b.Reader, o.worker: &b.Worker} {
		if *to, err = abs(path); err != nil {
			return err
		}
	}
	b.Module = o.module // a missing module is reported by its row
	return nil
}
