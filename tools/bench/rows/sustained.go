package rows

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/bulkhead-project/bulkhead/tools/bench/report"
)

func sustained(ctx context.Context, b *Bench) error {
	all, err := b.rivals(ctx)
	if err != nil {
		return err
	}
	for _, width := range []int{1, 4} {
		var contenders []contender
		for _, who := range all {
			row := b.rivalRow(report.Row{
				Group: "sustained", Name: fmt.Sprint("pods a minute, ", width, " at a time"), Unit: "1/min", Higher: true,
				What: fmt.Sprintf("a pod of true to its end, then the next, for %s", b.Window),
			}, &who)
			contenders = append(contenders, contender{
				row:     row,
				prepare: func(ctx context.Context) error { return b.awaitIdle(ctx, who.site) },
				sample: func(ctx context.Context) error {
					rate, err := sustain(ctx, width, b.Window, who.once)
					if err == nil {
						row.Add(rate)
					}
					return err
				},
			})
		}
		if err := b.pair(ctx, max(b.Runs/10, 1), contenders...); err != nil {
			return err
		}
		b.ratio(report.Row{
			Group: "sustained", Name: fmt.Sprint("podman's : ours, ", width, " at a time"), Unit: "×", Aim: map[int]float64{1: 1.5}[width],
		}, contenders[len(b.Builds)].row, contenders[0].row)
	}
	return nil
}

// sustain runs pods one after the other, in n rows at once, and returns how many ended per minute. No pod starts
// after the window.
func sustain(
	ctx context.Context, width int, window time.Duration, once func(ctx context.Context, number int) error,
) (perMinute float64, err error) {
	began := time.Now()
	var mu sync.Mutex
	done := 0
	_, err = atOnce(width, func(number int) error {
		for time.Since(began) < window {
			if err := once(ctx, number); err != nil {
				return err
			}
			mu.Lock()
			done++
			mu.Unlock()
		}
		return nil
	})
	return float64(done) / time.Since(began).Minutes(), err
}
