package rows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bulkhead-project/bulkhead/tools/bench/report"
)

// burst starts many pods at once. It starts large crowds less often than small ones.
func burst(ctx context.Context, b *Bench) error {
	all, err := b.rivals(ctx)
	if err != nil {
		return err
	}
	for _, n := range slices.Compact([]int{1, min(10, b.Pods), min(50, b.Pods)}) {
		aim := 0.0
		if n == 50 {
			aim = 10_000
		}
		var contenders []contender
		for _, who := range all {
			row := b.rivalRow(report.Row{
				Group: "burst", Name: fmt.Sprint(n, " at once"), Unit: "ms", Aim: aim,
				What: "so many pods that sleep, from before the first command until all run; of ours one command for all",
			}, &who)
			contenders = append(contenders, contender{
				row:     row,
				prepare: func(ctx context.Context) error { return b.awaitIdle(ctx, who.site) },
				sample: func(ctx context.Context) error {
					took, err := who.start(ctx, n)
					if err == nil {
						row.Add(ms(took))
					}
					return errors.Join(err, who.end(ctx, n))
				},
			})
		}
		if err := b.pair(ctx, rounds(b.Runs, n), contenders...); err != nil {
			return err
		}
	}
	return nil
}

// rounds returns how often that many pods are started at once.
func rounds(runs, pods int) int {
	switch {
	case pods < 5:
		return runs
	case pods < 20:
		return max(runs/2, 1)
	}
	return max(runs/5, 1)
}

// atOnce calls f n times concurrently. It returns the time until all calls returned, and the first few errors.
func atOnce(n int, f func(i int) error) (time.Duration, error) {
	began := time.Now()
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	var failed []error
	for range n {
		if err := <-errs; err != nil {
			failed = append(failed, err)
		}
	}
	took := time.Since(began)
	return took, errors.Join(failed[:min(len(failed), 3)]...)
}
