// Package group limits each pod to its size on the host, with a cgroup around its VM and its shim. Both are in the
// cgroup from their first instruction.
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

// The overhead of a VM and its shim on the host beyond the pod's own.
const (
	// overheadMemory is in bytes. Measured under load of CPU, memory and disk, with containers at their limits of
	// 64 and 256 MiB: 54 and 56 MiB for a fork, 99 MiB for a clone. The reclaimable page cache of the disks comes
	// on top.
	overheadMemory = 192 << 20
	// overheadCPU is a share of each CPU's time for the agent, the VM's devices and the shim. Without it a pod of a
	// few hundredths of a CPU would be too slow to answer.
	overheadCPU = 0.25
	groupPIDs   = 512 // a VM has up to 64 worker threads for each kind of I/O
)

// endTimeout bounds the end of a pod's cgroup.
const endTimeout = 10 * time.Second

// Undo is the journal's entry for a pod's cgroup; Destroy is its handler.
const Undo = "cgroup"

type undoArgs struct {
	Dirs []string `json:"dirs"`
	// Below reports that Dirs lie in another's cgroup, so that their parent directory must be removed too.
	Below bool `json:"below,omitempty"`
}

// Groups manages the cgroups of an instance's pods. On a host without cgroups, pods run without limits, and their
// records say why.
type Groups struct {
	host       *hostcgroup.Host
	log        *slog.Logger
	converters converters
}

// Find finds the place of an instance's cgroups.
func Find(roots dirs.Roots, instance string, log *slog.Logger) *Groups {
	return New(hostcgroup.Find(Name(roots, instance)), roots.Instance(instance), log)
}

// Name returns the name of the cgroup around an instance's cgroups. It is unique for the roots.
func Name(roots dirs.Roots, instance string) string {
	sum := sha256.Sum256([]byte(roots.Data + "\x00" + roots.State))
	return "bulkhead-" + instance + "-" + hex.EncodeToString(sum[:4])
}

// New returns the groups below host. state is the directory of the instance's state.
func New(host *hostcgroup.Host, state string, log *slog.Logger) *Groups {
	g := &Groups{host: host, log: log}
	g.converters.host, g.converters.log = host, log
	g.converters.journal = journal.At(filepath.Join(state, "converters.journal"))
	return g
}

// Overhead returns the host's overhead of each pod's VM and shim beyond the pod's own. RuntimeClasses state it.
func Overhead() store.Overhead { return atLeast(store.Overhead{}) }

// atLeast returns o, raised to Bulkhead's own values.
func atLeast(o store.Overhead) store.Overhead {
	return store.Overhead{Memory: max(overheadMemory, o.Memory), CPU: max(overheadCPU, o.CPU)}
}

// startWeight is the weight of a VM during its start, and of a parent, in percent of a running pod's weight: probes
// of running pods do not wait behind starts.
const startWeight = 25

// MemoryLimits returns the limits for the start of a VM that can grow to a size. The CPU limit is set when the VM
// is up, because the start is not the pod's own work.
func MemoryLimits(memoryMiB int, o store.Overhead) hostcgroup.Limits {
	return hostcgroup.Limits{Memory: int64(memoryMiB)<<20 + atLeast(o).Memory, PIDs: groupPIDs, Weight: startWeight}
}

// Make journals and creates the cgroup of a pod that may use so many bytes of memory; 0 means no limit. It lies in
// r.Cgroup.Parent, which is created if it is missing. If that has no room for the pod and its VM, the cgroup lies
// among the engine's own. The record says which.
func (g *Groups) Make(ctx context.Context, j journal.Journal, r *store.Pod, memory int64) error {
	r.Cgroup.Note = g.host.Support().Missing
	l := MemoryLimits(max(r.MemoryMiB, r.VM.Memory), r.Overhead)
	host, err := g.of(r, min(l.Memory, memory+atLeast(r.Overhead).Memory))
	switch {
	case err != nil && !errors.Is(err, hostcgroup.ErrTooSmall):
		return err
	case err != nil:
		g.log.Warn("a pod's cgroup is not in its requested parent", "pod", r.ID, "error", err)
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

// of returns the host cgroup for a pod's cgroup. With an error it is the engine's own.
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

// Limit changes the limits of a pod's cgroup.
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

// HoldCPU limits the CPU time of a running pod's cgroup; a quota of 0 means no limit.
func (g *Groups) HoldCPU(r *store.Pod, quota, period int64, o store.Overhead) {
	l := r.Cgroup.Limits
	l.Quota, l.Period, l.Weight = 0, 0, 0
	if quota > 0 && period > 0 {
		l.Quota, l.Period = quota+int64(atLeast(o).CPU*float64(period)), period
	}
	g.Limit(r, l)
}

// Remake creates a pod's cgroup again if it was removed.
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

// In returns a start function for processes of the pod, which start in the pod's cgroup. A nil start means
// (*exec.Cmd).Start.
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

// ErrDying is matched if the remaining processes of a cgroup were killed, and wait in the kernel for a file system
// that does not answer.
var ErrDying = errors.New("its processes cannot end yet")

// Destroy kills all processes in the pod's cgroup, recorded or not, and removes it. It is idempotent.
func Destroy(ctx context.Context, args json.RawMessage) error {
	var u undoArgs
	if err := json.Unmarshal(args, &u); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	g := hostcgroup.At(u.Dirs)
	if err := g.KillAndDelete(ctx); err != nil {
		if dying(g) {
			err = fmt.Errorf("%w: %w", ErrDying, err)
		}
		return err
	}
	if u.Below {
		for _, dir := range u.Dirs {
			_ = os.Remove(filepath.Dir(dir)) // the kernel refuses while there is another cgroup
		}
	}
	return nil
}

// dying reports whether all processes of a cgroup were killed, and there are some left.
func dying(g *hostcgroup.Group) bool {
	pids, err := g.PIDs()
	for _, pid := range pids {
		if id, err := procid.Of(pid); err == nil && id.Alive() && !id.Dying() {
			return false
		}
	}
	return err == nil && len(pids) > 0
}

// Reap ends the cgroups of this instance that belong to no pod and no converter any more. keep reports whether a
// pod's id is known.
func (g *Groups) Reap(ctx context.Context, keep func(id string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	return errors.Join(g.converters.reap(ctx), g.host.Reap(ctx, func(name string) bool { return name == convertersName || keep(name) }))
}

// Tidy removes the directory around the cgroups if it is empty.
func (g *Groups) Tidy() { g.host.Tidy() }
