// Package group holds each pod to its size on the host: a cgroup around its VM and
// its shim, which both are in from their first instruction.
package group

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/sandbox/journal"
)

// What a VM and its shim take on the host beyond what the pod may.
const (
	// overheadMemory, in bytes, was measured under load of CPU, memory and disk, with the
	// containers at their limits of 64 and 256 MiB: 54 and 56 MiB for a fork, 99 for a clone, beside
	// the page cache of its disks, which the host takes back.
	overheadMemory = 192 << 20
	// overheadCPU, a part of each CPU's time, is for the agent, for the VM's
	// devices and for the shim: without it a pod of a few hundredths of a CPU
	// would be too slow to be asked anything.
	overheadCPU = 0.25
	groupPIDs   = 512 // a VM's worker threads are 64 for each kind of I/O
)

// endTimeout bounds the end of what is left in a pod's group.
const endTimeout = 10 * time.Second

// Undo is the journal's entry for a pod's group; End is its handler.
const Undo = "cgroup"

type undoArgs struct {
	Dirs []string `json:"dirs"`
	// Below says that they lie in another's group, in which nothing of ours is to stay.
	Below bool `json:"below,omitempty"`
}

// Groups are those of an instance's pods. A host without cgroups has none: pods go
// on, and their records say why.
type Groups struct {
	host       *hostcgroup.Host
	log        *slog.Logger
	converters converters
}

// Find finds where the groups of an instance lie.
func Find(roots dirs.Roots, instance string, log *slog.Logger) *Groups {
	return New(hostcgroup.Find(Name(roots, instance)), roots.Instance(instance), log)
}

// Name is the name of the cgroup around an instance's, unique for its roots.
func Name(roots dirs.Roots, instance string) string {
	sum := sha256.Sum256([]byte(roots.Data + "\x00" + roots.State))
	return "bulkhead-" + instance + "-" + hex.EncodeToString(sum[:4])
}

// New takes the groups of host. state is the directory of the instance's state.
func New(host *hostcgroup.Host, state string, log *slog.Logger) *Groups {
	g := &Groups{host: host, log: log}
	g.converters.host, g.converters.log = host, log
	g.converters.journal = journal.At(filepath.Join(state, "converters.journal"))
	return g
}

// Overhead is what each pod's VM and shim may take on the host beyond what the pod may.
func Overhead() store.Overhead { return atLeast(store.Overhead{}) }

// atLeast is o, and no less than what Bulkhead knows that a VM takes.
func atLeast(o store.Overhead) store.Overhead {
	return store.Overhead{Memory: max(overheadMemory, o.Memory), CPU: max(overheadCPU, o.CPU)}
}

// startWeight is the weight of a VM that is being started, or kept in the pool, in
// percent of a running pod's: probes of running pods do not wait behind starts.
const startWeight = 25

// MemoryLimits are those of a VM that grows to a size and is being started. The
// share of the CPUs comes when it is up, since starting it is no work of the pod's.
func MemoryLimits(memoryMiB int, o store.Overhead) hostcgroup.Limits {
	return hostcgroup.Limits{Memory: int64(memoryMiB)<<20 + atLeast(o).Memory, PIDs: groupPIDs, Weight: startWeight}
}

// Make journals and makes the group of a pod that may use so many bytes of memory, 0 for no
// limit: in r.Cgroup.Parent, which is made if it is missing. Where that has no room for pod and
// VM the group is among the engine's own. The record says which.
func (g *Groups) Make(ctx context.Context, j journal.Journal, r *store.Pod, memory int64) error {
	r.Cgroup.Note = g.host.Support().Missing
	l := MemoryLimits(max(r.MemoryMiB, r.Machine.Memory), r.Overhead)
	host, err := g.of(r, min(l.Memory, memory+atLeast(r.Overhead).Memory))
	switch {
	case err != nil && !errors.Is(err, hostcgroup.ErrTooSmall):
		return err
	case err != nil:
		g.log.Warn("a pod's cgroup is not where it was asked for", "pod", r.ID, "error", err)
		r.Cgroup.Parent, r.Cgroup.Note = "", err.Error()
	}
	d := host.Dirs(r.ID)
	if len(d) == 0 {
		return nil
	}
	if _, err := j.Before(ctx, Undo, undoArgs{Dirs: d, Below: r.Cgroup.Parent != ""}, atomicfile.Volatile); err != nil {
		return err
	}
	if _, err := host.Create(r.ID, l); err != nil {
		g.log.Warn("a pod has no cgroup on the host", "pod", r.ID, "error", err)
		r.Cgroup.Note = err.Error()
		return nil
	}
	fault.Point("cgroup.made")
	r.Cgroup.Dirs, r.Cgroup.Limits = d, l
	return nil
}

// of is where a pod's group is made: among the engine's own with an error.
func (g *Groups) of(r *store.Pod, memory int64) (*hostcgroup.Host, error) {
	if r.Cgroup.Parent == "" {
		return g.host, nil
	}
	below, err := g.host.Below(r.Cgroup.Parent, memory)
	if err != nil {
		return g.host, err
	}
	return below, nil
}

// Limit gives a pod's group other limits.
func (g *Groups) Limit(r *store.Pod, l hostcgroup.Limits) {
	if len(r.Cgroup.Dirs) == 0 || r.Cgroup.Limits == l {
		return
	}
	if err := hostcgroup.At(r.Cgroup.Dirs).Set(l); err != nil {
		g.log.Warn("limit a pod's cgroup on the host", "pod", r.ID, "error", err)
		r.Cgroup.Note = err.Error()
		return
	}
	r.Cgroup.Limits = l
}

// HoldCPU gives a running pod's group its share of the CPUs; a quota of 0 is no limit.
func (g *Groups) HoldCPU(r *store.Pod, quota, period int64, o store.Overhead) {
	l := r.Cgroup.Limits
	l.Quota, l.Period, l.Weight = 0, 0, 0
	if quota > 0 && period > 0 {
		l.Quota, l.Period = quota+int64(atLeast(o).CPU*float64(period)), period
	}
	g.Limit(r, l)
}

// Remake makes a pod's group again if somebody has removed it.
func (g *Groups) Remake(r *store.Pod) {
	host, err := g.of(r, 0)
	if err == nil {
		if len(r.Cgroup.Dirs) == 0 || !slices.Equal(r.Cgroup.Dirs, host.Dirs(r.ID)) {
			return
		}
		_, err = host.Create(r.ID, r.Cgroup.Limits)
	}
	if err != nil {
		g.log.Warn("make a pod's cgroup on the host again", "pod", r.ID, "error", err)
	}
}

// In is start for a process of the pod's, which is then born in the pod's group. A
// nil start is (*exec.Cmd).Start.
func In(r *store.Pod, start func(*exec.Cmd) error) func(*exec.Cmd) error {
	if len(r.Cgroup.Dirs) == 0 {
		return start
	}
	if start == nil {
		start = (*exec.Cmd).Start
	}
	g := hostcgroup.At(r.Cgroup.Dirs)
	return func(cmd *exec.Cmd) error { return g.Start(cmd, start) }
}

// ErrDying is matched where all that is left in a group was killed, and waits in the kernel for a
// file system that does not answer.
var ErrDying = errors.New("its processes cannot end yet")

// End kills whatever is still in the pod's group, whether or not anything else
// knows of it, and removes it. It is idempotent.
func End(ctx context.Context, args json.RawMessage) error {
	var u undoArgs
	if err := json.Unmarshal(args, &u); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	g := hostcgroup.At(u.Dirs)
	if err := g.End(ctx); err != nil {
		if dying(g) {
			err = fmt.Errorf("%w: %w", ErrDying, err)
		}
		return err
	}
	if u.Below {
		for _, dir := range u.Dirs {
			_ = os.Remove(filepath.Dir(dir)) // the kernel refuses while there is another group
		}
	}
	return nil
}

// dying tells whether there are processes in a group, and all of them were killed.
func dying(g *hostcgroup.Group) bool {
	pids, err := g.PIDs()
	for _, pid := range pids {
		if id, err := procid.Of(pid); err == nil && id.Alive() && !id.Dying() {
			return false
		}
	}
	return err == nil && len(pids) > 0
}

// Reap ends the groups of this instance that are of no pod and no converter any more; keep tells of
// a pod's id whether it is known.
func (g *Groups) Reap(ctx context.Context, keep func(id string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	return errors.Join(g.converters.reap(ctx), g.host.Reap(ctx, func(name string) bool { return name == convertersName || keep(name) }))
}

// Tidy removes the directory around the groups if none is left.
func (g *Groups) Tidy() { g.host.Tidy() }
