package rows

import (
	"context"
	"strconv"
	"strings"

	"github.com/bulkhead-project/bulkhead/tools/bench/report"
	"github.com/bulkhead-project/bulkhead/tools/bench/site"
)

func run(ctx context.Context, b *Bench) error {
	var all []contender
	for i := range b.Builds {
		build := &b.Builds[i]
		c, err := b.runOf(ctx, build, report.Row{
			Group: "run", Name: "run --rm true", Unit: "ms", Aim: 450,
			What: "bulkhead run --rm of busybox true with network, from before the command to its end; the VM is a fork of a warm parent",
		}, false)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	for _, cold := range []struct {
		name, what string
		flags      []string
	}{
		{"… as a clone", "the same with an engine that keeps nothing warm (BULKHEAD_WARM=off): each VM is a clone of the template", nil},
		{"… cold", "the same with --template=off: each VM boots from its kernel", []string{"--template=off"}},
	} {
		c, err := b.runOf(ctx, &b.Builds[0], report.Row{Group: "run", Name: cold.name, Unit: "ms", What: cold.what}, true, cold.flags...)
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
		Group: "run", Name: "podman run --rm true", Unit: "ms", Absent: absent, What: "podman run --rm --network none of the same image",
	}, nil)
	all = append(all, b.inPodman(p, row, "run", "--rm", Small, "true"))
	if err := b.pair(ctx, b.Runs, all...); err != nil {
		return err
	}
	b.ratio(report.Row{Group: "run", Name: "run --rm true : podman's", Unit: "×", Aim: 1}, all[0].row, row)
	return nil
}

// runOf measures `bulkhead run --rm` on a site of a build.
func (b *Bench) runOf(ctx context.Context, build *Build, r report.Row, clones bool, flags ...string) (contender, error) {
	row := b.row(r, build)
	s, err := b.site(ctx, build, clones)
	if err != nil {
		return contender{}, err
	}
	file, err := s.Write("once", site.Manifest("once", Small, "true"))
	if err != nil {
		return contender{}, err
	}
	args := append([]string{"run", "--rm", "--quiet", "--timings"}, flags...)
	return contender{
		row:     row,
		prepare: func(ctx context.Context) error { return b.awaitIdle(ctx, s) },
		sample: func(ctx context.Context) error {
			r, err := s.Run(ctx, append(args, file)...)
			if err != nil {
				return err
			}
			row.Add(ms(r.Took))
			for _, p := range timings(r.Stderr) {
				row.AddPhase(p.name, p.ms)
			}
			return nil
		},
	}, nil
}

type phase struct {
	name string
	ms   float64
}

// timings parses the output of --timings: a line "12.3 ms name" for each phase.
func timings(stderr string) []phase {
	var list []phase
	for line := range strings.Lines(stderr) {
		number, name, ok := strings.Cut(strings.TrimSpace(line), " ms  ")
		if v, err := strconv.ParseFloat(number, 64); ok && err == nil {
			list = append(list, phase{name, v})
		}
	}
	return list
}
