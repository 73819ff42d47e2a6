package rows

import (
	"context"
	"fmt"

	"github.com/bulkhead-project/bulkhead/tools/bench/report"
	"github.com/bulkhead-project/bulkhead/tools/bench/site"
)

// laterExecs is the number of commands after the first one in each pod.
const laterExecs = 4

func exec(ctx context.Context, b *Bench) error {
	var all []contender
	for i := range b.Builds {
		c, err := b.execOf(ctx, &b.Builds[i])
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	p, absent, err := b.baseline(ctx)
	if err != nil {
		return err
	}
	row := b.row(report.Row{
		Group: "exec", Name: "podman exec true", Unit: "ms", Absent: absent, What: "podman exec of true in a running container of the same image",
	}, nil)
	if absent == "" {
		if _, err := p.Run(ctx, "run", "-d", "--name", "bench", Small, "sleep", "100000"); err != nil {
			row.Failed = err.Error()
		}
	}
	all = append(all, b.inPodman(p, row, "exec", "bench", "true"))
	if err := b.pair(ctx, b.Runs, all...); err != nil {
		return err
	}
	if absent == "" {
		_, err = p.Run(ctx, "rm", "--force", "--time", "0", "bench")
	}
	return err
}

// execOf starts a pod for each sample, waits until everything is at rest, and runs commands in the pod.
func (b *Bench) execOf(ctx context.Context, build *Build) (contender, error) {
	first := b.row(report.Row{
		Group: "exec", Name: "exec true, first", Unit: "ms", Aim: 50,
		What: "bulkhead exec of true, from before the command to its end: the first in a pod that idles",
	}, build)
	later := b.row(report.Row{
		Group: "exec", Name: "exec true, later", Unit: "ms", Aim: 40,
		What: fmt.Sprintf("the %d after it in the same pod", laterExecs),
	}, build)
	s, err := b.site(ctx, build, false)
	if err != nil {
		return contender{}, err
	}
	file, err := s.Write("exec", site.Manifest("exec", Small, "sleep", "100000"))
	if err != nil {
		return contender{}, err
	}
	return contender{
		row: first,
		prepare: func(ctx context.Context) error {
			if err := b.awaitIdle(ctx, s); err != nil {
				return err
			}
			if _, err := s.Start(ctx, file); err != nil {
				return err
			}
			return b.awaitIdle(ctx, s)
		},
		sample: func(ctx context.Context) error {
			for i := range 1 + laterExecs {
				r, err := s.Run(ctx, "exec", "exec", "--", "true")
				if err != nil {
					return err
				}
				if i == 0 {
					first.Add(ms(r.Took))
				} else {
					later.Add(ms(r.Took))
				}
			}
			return s.Remove(ctx, "exec")
		},
	}, nil
}
