package rows

import (
	"context"

	"github.com/bulkhead-project/bulkhead/tools/bench/report"
)

// cpu measures the processor time of a pod's whole life, until everything is at rest again, so that later work
// counts too.
func cpu(ctx context.Context, b *Bench) error {
	all, err := b.rivals(ctx)
	if err != nil {
		return err
	}
	s, err := b.site(ctx, &b.Builds[0], true)
	if err != nil {
		return err
	}
	clones := ours(s)
	clones.name, clones.what = "as a clone", "bulkhead run with an engine of BULKHEAD_WARM=off"
	var contenders []contender
	for _, who := range append(all, clones) {
		row := b.rivalRow(report.Row{
			Group: "cpu", Name: "CPU per pod", Unit: "ms", Aim: 450,
			What: "processor time of all processes, by their cgroup, from before a pod that runs true until it is removed and all is at rest",
		}, &who)
		contenders = append(contenders, contender{
			row:     row,
			prepare: func(ctx context.Context) error { return b.awaitIdle(ctx, who.site) },
			sample: func(ctx context.Context) error {
				before, err := who.account.Used()
				if err == nil {
					err = who.once(ctx, 0)
				}
				if err == nil {
					err = b.awaitIdle(ctx, who.site)
				}
				if err != nil {
					return err
				}
				after, err := who.account.Used()
				if err == nil {
					row.Add(ms(after - before))
				}
				return err
			},
		})
	}
	return b.pair(ctx, b.Runs, contenders...)
}
