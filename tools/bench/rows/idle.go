package rows

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/bulkhead-project/bulkhead/tools/bench/procs"
	"github.com/bulkhead-project/bulkhead/tools/bench/report"
	"github.com/bulkhead-project/bulkhead/tools/bench/site"
)

// cpuWindow is how long the CPU time of idle pods is measured.
const cpuWindow = 20 * time.Second

// crowd measures the group "idle" on one build.
type crowd struct {
	b     *Bench
	s     *site.Site
	build *Build
	n     int

	first, last, ratio, atOnce *report.Row
	alone, many                weights
	engine, share, held, busy  *report.Row
	parents                    *report.Row
}

func idle(ctx context.Context, b *Bench) error {
	for i := range b.Builds {
		c, err := b.newCrowd(ctx, &b.Builds[i])
		if err != nil {
			return err
		}
		if err := c.measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bench) newCrowd(ctx context.Context, build *Build) (*crowd, error) {
	c := &crowd{b: b, build: build, n: b.Pods}
	add := func(name, unit string, aim float64, what string) *report.Row {
		return b.row(report.Row{Group: "idle", Name: name, Unit: unit, Aim: aim, What: what}, build)
	}
	n := strconv.Itoa(c.n)
	c.first = add("start, idle pod 1", "ms", 0,
		"bulkhead run -d of a pod that sleeps, from before the command to its end, when there is none but a warm parent")
	c.last = add("start, idle pod "+n, "ms", 0, fmt.Sprintf("the same beside %d idle pods", c.n-1))
	c.ratio = add("start, pod "+n+" : pod 1", "×", 1.2, "the medians' ratio")
	c.atOnce = add("start, "+n+" at once", "ms", 0, "bulkhead run -d of one file with all the pods, to its end, when all run")
	c.alone = newWeights("1", 0, 0, add)
	c.many = newWeights(n, 40, 10, add)
	c.engine = add("PSS, engine at "+n, "MB", 0, "the engine's proportional memory, with all pods there")
	c.share = add("… and per pod", "MB", 0, "the same divided by the pods")
	c.parents = add("PSS, warm parents at "+n, "MB", 0, "the proportional memory of the processes that the pods are forks of")
	c.held = add("template held in memory", "MB", 0,
		"the memory file that clones share and the engine holds; its mapped part is also in the pods' PSS")
	c.busy = add("CPU of an idle pod at "+n, "%", 0,
		fmt.Sprintf("user and system time of QEMU and shim over %s, of one core; a sample a pod", cpuWindow))
	var err error
	c.s, err = b.site(ctx, build, false)
	return c, err
}

// measure goes from no pod to all pods and back.
func (c *crowd) measure(ctx context.Context) error {
	names := site.Names("idle", c.n)
	var all []string
	for _, name := range names {
		all = append(all, site.Manifest(name, Small, "sleep", "100000"))
	}
	one, err := c.s.Write("one", all[c.n-1])
	if err != nil {
		return err
	}
	file, err := c.s.Write("all", all...)
	if err != nil {
		return err
	}
	if err := c.starts(ctx, c.first, one, names[c.n-1], func(ctx context.Context) error { return c.weigh(ctx, c.alone, 1) }); err != nil {
		return err
	}
	if err := c.gather(ctx, file, names, all); err != nil {
		return err
	}
	if err := c.atRest(ctx, one, names); err != nil {
		return err
	}
	if len(c.first.Samples) > 0 && len(c.last.Samples) > 0 {
		c.ratio.Add(c.last.Median() / c.first.Median())
	}
	return c.crowds(ctx, max(c.b.Runs/5, 1)-1, file, names)
}

// gather starts all pods: at once, which is a sample, or one after the other if that fails.
func (c *crowd) gather(ctx context.Context, file string, names, manifests []string) error {
	if err := c.b.awaitIdle(ctx, c.s); err != nil {
		return err
	}
	c.b.Progress(c.atOnce.Name)
	r, err := c.s.Start(ctx, file)
	if err == nil {
		c.atOnce.Add(ms(r.Took))
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.atOnce.Failed = err.Error()
	c.b.Progress(c.atOnce.Name + ": " + err.Error())
	for i, name := range names {
		file, err := c.s.Write(name, manifests[i])
		if err != nil {
			return err
		}
		if _, err := c.s.Start(ctx, file); err != nil {
			return err
		}
	}
	return nil
}

// starts measures the start of one pod repeatedly.
func (c *crowd) starts(ctx context.Context, row *report.Row, file, name string, then func(context.Context) error) error {
	return c.b.pair(ctx, c.b.Runs, contender{
		row:     row,
		prepare: func(ctx context.Context) error { return c.b.awaitIdle(ctx, c.s) },
		sample: func(ctx context.Context) error {
			r, err := c.s.Start(ctx, file)
			if err != nil {
				return err
			}
			row.Add(ms(r.Took))
			if err := then(ctx); err != nil {
				return err
			}
			return c.s.Remove(ctx, name)
		},
	})
}

// crowds repeatedly starts all pods at once and removes them.
func (c *crowd) crowds(ctx context.Context, rounds int, file string, names []string) error {
	return c.b.pair(ctx, rounds, contender{
		row:     c.atOnce,
		prepare: func(ctx context.Context) error { return c.b.awaitIdle(ctx, c.s) },
		sample: func(ctx context.Context) error {
			r, err := c.s.Start(ctx, file)
			if err != nil {
				return err
			}
			c.atOnce.Add(ms(r.Took))
			return c.s.Remove(ctx, names...)
		},
	})
}

// atRest measures the memory of all pods, and removes them.
func (c *crowd) atRest(ctx context.Context, one string, names []string) error {
	if err := c.weigh(ctx, c.many, c.n); err != nil {
		return err
	}
	if err := c.count(ctx); err != nil {
		return err
	}
	last := names[c.n-1]
	if err := c.s.Remove(ctx, last); err != nil {
		return err
	}
	if err := c.starts(ctx, c.last, one, last, func(context.Context) error { return nil }); err != nil {
		return err
	}
	return c.s.Remove(ctx, names[:c.n-1]...)
}

// count measures the CPU time of the pods at rest.
func (c *crowd) count(ctx context.Context) error {
	c.b.Progress(c.busy.Name)
	before, err := c.pods(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := procs.Wait(ctx, cpuWindow); err != nil {
		return err
	}
	after, err := c.pods(ctx)
	if err != nil {
		return err
	}
	window := time.Since(began).Seconds()
	for id, m := range after {
		was, ok := before[id]
		if !ok {
			return fmt.Errorf("sandbox %s did not exist before", id)
		}
		ticks := m.Shim.Ticks + m.QEMU.Ticks - was.Shim.Ticks - was.QEMU.Ticks
		c.busy.Add(float64(ticks) / procs.TicksPerSecond / window * 100)
	}
	return nil
}

// pods returns the processes of the pods, without processes that belong to no pod.
func (c *crowd) pods(ctx context.Context) (map[string]site.VM, error) {
	list, err := c.s.Pods(ctx)
	if err != nil {
		return nil, err
	}
	all, err := c.s.VMs()
	if err != nil {
		return nil, err
	}
	found := map[string]site.VM{}
	for name, p := range list {
		m, ok := all[p.Sandbox]
		if !ok {
			return nil, fmt.Errorf("pod %s (%s) has no VM", name, p.Status)
		}
		found[p.Sandbox] = m
	}
	return found, nil
}
