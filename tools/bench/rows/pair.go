package rows

import (
	"context"
	"fmt"

	"github.com/bulkhead-project/bulkhead/tools/bench/report"
)

// contender is one of several things that are measured in turns, so that a disturbance affects all of them.
type contender struct {
	row *report.Row
	// prepare is not measured. It may be nil.
	prepare func(ctx context.Context) error
	// sample adds its samples to the row.
	sample func(ctx context.Context) error
}

// pair samples every contender n times. Each round starts with another contender. It stops sampling a contender
// that fails. The error is ctx's.
func (b *Bench) pair(ctx context.Context, n int, all ...contender) error {
	for i := range n {
		for j := range all {
			c := &all[(i+j)%len(all)]
			if c.row.Failed != "" || c.row.Absent != "" {
				continue
			}
			b.Progress(fmt.Sprintf("%s %d/%d", c.row.Name, i+1, n))
			err := error(nil)
			if c.prepare != nil {
				err = c.prepare(ctx)
			}
			if err == nil {
				err = c.sample(ctx)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				c.row.Failed = fmt.Sprintf("sample %d: %v", i+1, err)
				b.Progress(c.row.Name + ": " + err.Error())
			}
		}
	}
	return nil
}

// ratio adds a row with the ratio of two rows' medians, if both have samples.
func (b *Bench) ratio(r report.Row, of, to *report.Row) {
	if len(of.Samples) == 0 || len(to.Samples) == 0 {
		return
	}
	r.What = "the medians' ratio"
	b.row(r, nil).Add(of.Median() / to.Median())
}
