package rows

import (
	"context"
	"fmt"

	"github.com/bulkhead-project/bulkhead/internal/pss"
	"github.com/bulkhead-project/bulkhead/tools/bench/procs"
	"github.com/bulkhead-project/bulkhead/tools/bench/report"
)

// weights has the rows for the memory of one idle pod among n.
type weights struct{ pod, qemu, guest, code, shim *report.Row }

func newWeights(n string, podAim, shimAim float64, add func(name, unit string, aim float64, what string) *report.Row) weights {
	return weights{
		pod: add("PSS, idle pod at "+n, "MB", podAim,
			"proportional memory on the host of QEMU and shim of one pod beside the warm parent, in 10^6 bytes, at rest"),
		qemu:  add("… its QEMU", "MB", 0, ""),
		guest: add("…… guest memory", "MB", 0, "the part of QEMU's that is the guest's memory, written or shared with template and parent"),
		code:  add("…… translated code", "MB", 0, "the part of QEMU's that is its translation cache"),
		shim:  add("… its shim", "MB", shimAim, ""),
	}
}

// weigh adds a sample of every existing pod. It expects n pods.
func (c *crowd) weigh(ctx context.Context, w weights, n int) error {
	if err := c.b.awaitIdle(ctx, c.s); err != nil {
		return err
	}
	pods, err := c.pods(ctx)
	if err != nil {
		return err
	}
	if len(pods) != n {
		return fmt.Errorf("there are %d pods instead of %d", len(pods), n)
	}
	for _, m := range pods {
		qemu, err := procs.Weigh(m.QEMU.PID)
		if err != nil {
			return err
		}
		shim, err := pss.Of(m.Shim.PID)
		if err != nil {
			return err
		}
		w.qemu.Add(mb(qemu.PSS))
		w.guest.Add(mb(qemu.Guest))
		w.code.Add(mb(qemu.Code))
		w.shim.Add(mb(shim))
		w.pod.Add(mb(qemu.PSS + shim))
	}
	if n == c.n {
		return c.weighEngine()
	}
	return nil
}

func (c *crowd) weighEngine() error {
	pid, err := c.s.Engine()
	if err != nil {
		return err
	}
	own, err := pss.Of(pid)
	if err != nil {
		return err
	}
	held, err := procs.HeldMemory(pid)
	if err != nil {
		return err
	}
	parents, err := c.s.Parents()
	if err != nil {
		return err
	}
	warm := int64(0)
	for _, p := range parents {
		weight, err := pss.Of(p.PID)
		if err != nil {
			return err
		}
		warm += weight
	}
	c.parents.Add(mb(warm))
	c.engine.Add(mb(own))
	c.share.Add(mb(own) / float64(c.n))
	c.held.Add(mb(held))
	return nil
}

func mb(bytes int64) float64 { return float64(bytes) / 1e6 }
