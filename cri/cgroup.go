package cri

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os/exec"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/cri/store"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// What a machine and its shim take on the host beyond what the pod may.
const (
	overheadMemory = 192 << 20 // bytes
	// overheadCPU, a part of each CPU's time, is for the agent, for the
	// machine's devices and for the shim: without it a pod of a few hundredths
	// of a CPU would be too slow to be asked anything.
	overheadCPU = 0.25
	groupPIDs   = 512 // a machine's worker threads are 64 for each kind of I/O
)

// groupEnd bounds the end of what is left in a pod's group.
const groupEnd = 10 * time.Second

// undoCgroup is the journal's entry for a pod's group on the host.
const undoCgroup = "cgroup"

type cgroupUndo struct {
	Dirs []string `json:"dirs"`
}

// groupTag names the directory of an instance's groups in the host's cgroups.
func groupTag(roots dirs.Roots, instance string) string {
	sum := sha256.Sum256([]byte(roots.Data + "\x00" + roots.State))
	return "bulkhead-" + instance + "-" + hex.EncodeToString(sum[:4])
}

// quota is a pod's share of the CPUs where its machine has more of them; 0 is none.
func quota(size sizing.Size) int64 {
	if size.Quota <= 0 || size.Quota >= int64(size.VCPUs)*size.Period {
		return 0
	}
	return size.Quota
}

// overhead is what a pod's machine may take beside its own: at least what
// Bulkhead knows that it takes.
type overhead struct {
	memory int64   // bytes
	cpu    float64 // a part of each CPU's time
}

// overheadOf is that of the pod's configuration (the API's spec.overhead).
func overheadOf(r *runtimeapi.LinuxContainerResources) overhead {
	o := overhead{memory: max(overheadMemory, r.GetMemoryLimitInBytes()), cpu: overheadCPU}
	if r.GetCpuQuota() > 0 && r.GetCpuPeriod() > 0 {
		o.cpu = max(o.cpu, float64(r.GetCpuQuota())/float64(r.GetCpuPeriod()))
	}
	return o
}

// memoryLimits are those of a machine that grows to a size; the CPUs' share comes
// when it is up, since starting it is no work of the pod's.
func memoryLimits(memoryMiB int, o overhead) hostcgroup.Limits {
	return hostcgroup.Limits{Memory: int64(memoryMiB)<<20 + o.memory, PIDs: groupPIDs}
}

// makeGroup journals and makes the group of a pod. Without one, the pod goes on and
// its record says why.
func (s *Service) makeGroup(ctx context.Context, r *store.Pod) error {
	r.Cgroup.Note = s.groups.Support().Missing
	d := s.groups.Dirs(r.ID)
	if len(d) == 0 {
		return nil
	}
	if _, err := s.store.Journal(r.ID).Before(ctx, undoCgroup, cgroupUndo{d}, atomicfile.Volatile); err != nil {
		return err
	}
	l := memoryLimits(max(r.MemoryMiB, r.Machine.Memory), overheadOf(nil))
	if _, err := s.groups.Create(r.ID, l); err != nil {
		s.log.Warn("a pod has no cgroup on the host", "pod", r.ID, "error", err)
		r.Cgroup.Note = err.Error()
		return nil
	}
	fault.Point("cgroup.made")
	r.Cgroup.Dirs, r.Cgroup.Limits = d, l
	return nil
}

// limitGroup gives a pod's group other limits.
func (s *Service) limitGroup(r *store.Pod, l hostcgroup.Limits) {
	if len(r.Cgroup.Dirs) == 0 || r.Cgroup.Limits == l {
		return
	}
	if err := hostcgroup.At(r.Cgroup.Dirs).Set(l); err != nil {
		s.log.Warn("limit a pod's cgroup on the host", "pod", r.ID, "error", err)
		r.Cgroup.Note = err.Error()
		return
	}
	r.Cgroup.Limits = l
}

// holdCPU gives a pod's group its share of the CPUs; 0 is no limit.
func (s *Service) holdCPU(r *store.Pod, quota, period int64, o overhead) {
	l := r.Cgroup.Limits
	l.Quota, l.Period = 0, 0
	if quota > 0 && period > 0 {
		l.Quota, l.Period = quota+int64(o.cpu*float64(period)), period
	}
	s.limitGroup(r, l)
}

// remakeGroup makes a pod's group again if somebody has removed it.
func (s *Service) remakeGroup(r *store.Pod) {
	if len(r.Cgroup.Dirs) == 0 || !slices.Equal(r.Cgroup.Dirs, s.groups.Dirs(r.ID)) {
		return
	}
	if _, err := s.groups.Create(r.ID, r.Cgroup.Limits); err != nil {
		s.log.Warn("make a pod's cgroup on the host again", "pod", r.ID, "error", err)
	}
}

// inGroup is start for a process of the pod's, which is then born in the pod's
// group.
func inGroup(r *store.Pod, start func(*exec.Cmd) error) func(*exec.Cmd) error {
	if len(r.Cgroup.Dirs) == 0 {
		return start
	}
	if start == nil {
		start = (*exec.Cmd).Start
	}
	g := hostcgroup.At(r.Cgroup.Dirs)
	return func(cmd *exec.Cmd) error { return g.Start(cmd, start) }
}

// endGroup kills whatever is still in the pod's group, whether or not anything
// else knows of it, and removes it.
func endGroup(ctx context.Context, args json.RawMessage) error {
	var u cgroupUndo
	if err := json.Unmarshal(args, &u); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, groupEnd)
	defer cancel()
	return hostcgroup.At(u.Dirs).End(ctx)
}

// reapGroups ends the groups of this instance that are of no pod any more.
func (s *Service) reapGroups(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, groupEnd)
	defer cancel()
	ids, err := s.store.PodIDs()
	if err != nil {
		return err
	}
	return s.groups.Reap(ctx, func(id string) bool { return s.busy(id) || slices.Contains(ids, id) })
}

// updateCPU follows the change of a container's limit: the pod's share changes by
// as much, or is without a limit from then on.
func (p *pod) updateCPU(was, now cpuLimit) error {
	r := p.snapshot()
	l, o := r.Cgroup.Limits, overheadOf(p.config.GetLinux().GetOverhead())
	if now.quota == 0 || l.Quota == 0 || r.Sized {
		return nil // nothing is changed, there is no share, or it is told apart
	}
	share := l.Quota - int64(o.cpu*float64(l.Period)) + now.of(l.Period) - was.of(l.Period)
	if now.quota < 0 || was.quota <= 0 {
		share = 0
	}
	p.s.holdCPU(&r, max(share, 0), l.Period, o)
	return p.assume(func(record *store.Pod) { record.Cgroup = r.Cgroup })
}

// cpuLimit is a container's; negative is none, 0 is not stated.
type cpuLimit struct{ quota, period int64 }

func (c cpuLimit) of(period int64) int64 {
	own := c.period
	if own <= 0 {
		own = 100_000
	}
	return c.quota * period / own
}

// cpu is the container's limit as it stands.
func (c *container) cpu() cpuLimit {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	r := c.config.GetLinux().GetResources()
	return cpuLimit{r.GetCpuQuota(), r.GetCpuPeriod()}
}
