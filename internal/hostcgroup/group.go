package hostcgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// Group is one cgroup: a directory of cgroup2, or one in each hierarchy of the older controllers. A nil Group does
// nothing. It is safe for concurrent use, and holds no descriptors.
type Group struct{ dirs []string }

// At returns the group with these directories, as returned by Dirs; nil if there are none.
func At(dirs []string) *Group {
	if len(dirs) == 0 {
		return nil
	}
	return &Group{dirs}
}

// has reports whether a directory has a file, which shows its kind.
func has(dir, file string) bool {
	_, err := os.Lstat(filepath.Join(dir, file))
	return err == nil
}

// unified reports whether a directory is in cgroup2.
func unified(dir string) bool { return has(dir, "cgroup.events") }

// Set changes the group's limits. It skips limits without a controller; Support has reported those.
func (g *Group) Set(l Limits) error {
	if g == nil {
		return nil
	}
	for _, dir := range g.dirs {
		set := setV1
		if unified(dir) {
			set = setV2
		}
		if err := set(dir, l); err != nil {
			return fmt.Errorf("limit a cgroup: %w", err)
		}
	}
	return nil
}

// Memory returns the group's memory usage on the host, in bytes. It returns false without a controller for that.
func (g *Group) Memory() (int64, bool) {
	if g == nil {
		return 0, false
	}
	for _, dir := range g.dirs {
		for _, file := range []string{"memory.current", "memory.usage_in_bytes"} {
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue
			}
			n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// HeldMemory returns the memory that the host would regain if the group ended, in bytes: the usage without the page
// cache, which can be reclaimed anyway and may be shared. Shared memory counts for the group that wrote it first. It
// returns false without a controller for that.
func (g *Group) HeldMemory() (int64, bool) {
	all, known := g.Memory()
	if !known {
		return 0, false
	}
	for _, dir := range g.dirs {
		text, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
		if err != nil {
			continue
		}
		stat := map[string]int64{}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			stat[name], _ = strconv.ParseInt(value, 10, 64)
		}
		prefix := ""
		if _, old := stat["total_inactive_file"]; old { // cgroup v1: groups below count too
			prefix = "total_"
		}
		return max(0, all-stat[prefix+"inactive_file"]-stat[prefix+"active_file"]), true
	}
	return all, true
}

func setV2(dir string, l Limits) error {
	type file struct{ name, value string }
	limit := func(n int64) string {
		if n <= 0 {
			return "max"
		}
		return decimal(n)
	}
	swap := "max"
	if l.Memory > 0 {
		swap = "0" // memory.max does not count swapped memory
	}
	for _, f := range []file{
		{"memory.max", limit(l.Memory)}, {"memory.swap.max", swap},
		{"cpu.max", limit(l.Quota) + " " + decimal(l.period())}, {"pids.max", limit(l.PIDs)},
		{weightV2, decimal(l.weight(ordinaryV2))},
	} {
		if !has(dir, f.name) {
			continue
		}
		if err := write(dir, f.name, f.value); err != nil {
			return err
		}
	}
	return nil
}

func setV1(dir string, l Limits) error {
	limit := func(n int64, none string) string {
		if n <= 0 {
			return none
		}
		return decimal(n)
	}
	// Several controllers may share a directory.
	var errs []error
	if has(dir, "memory.limit_in_bytes") {
		errs = append(errs, setMemoryV1(dir, limit(l.Memory, "-1")))
	}
	if has(dir, "cpu.cfs_quota_us") {
		errs = append(errs, setCPUV1(dir, limit(l.Quota, "-1"), decimal(l.period())))
	}
	if has(dir, weightV1) {
		errs = append(errs, write(dir, weightV1, decimal(l.weight(ordinaryV1))))
	}
	if has(dir, "pids.max") {
		errs = append(errs, write(dir, "pids.max", limit(l.PIDs, "max")))
	}
	return errors.Join(errs...)
}

// setCPUV1 sets a quota and its period. A write of either stops all processors of the host for a moment, and takes
// milliseconds. So unchanged values are not written.
func setCPUV1(dir, quota, period string) error {
	const quotaFile, periodFile = "cpu.cfs_quota_us", "cpu.cfs_period_us"
	if holds(dir, periodFile, period) {
		if holds(dir, quotaFile, quota) {
			return nil
		}
		return write(dir, quotaFile, quota)
	}
	// The kernel checks each against the other. Without a quota any period is valid.
	return errors.Join(write(dir, quotaFile, "-1"), write(dir, periodFile, period), write(dir, quotaFile, quota))
}

// holds reports whether a file has that value.
func holds(dir, file, value string) bool {
	data, err := os.ReadFile(filepath.Join(dir, file))
	return err == nil && strings.TrimSpace(string(data)) == value
}

// setMemoryV1 sets memory, and memory with swap if the kernel counts that, to one value. The second must never be less
// than the first, so the order of the writes depends on the direction.
func setMemoryV1(dir, value string) error {
	const memory, both = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
	err := write(dir, memory, value)
	if !has(dir, both) {
		return err
	}
	if errors.Is(err, unix.EINVAL) {
		return errors.Join(write(dir, both, value), write(dir, memory, value))
	}
	return errors.Join(err, write(dir, both, value))
}

func (l Limits) period() int64 {
	if l.Period > 0 {
		return l.Period
	}
	return defaultPeriod
}

// PIDs returns the processes in the group.
func (g *Group) PIDs() ([]int, error) {
	if g == nil {
		return nil, nil
	}
	seen := map[int]bool{}
	var all []int
	for _, dir := range g.dirs {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil && !gone(err) {
			return nil, fmt.Errorf("list a cgroup's processes: %w", err)
		}
		for line := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(line); err == nil && !seen[pid] {
				seen[pid] = true
				all = append(all, pid)
			}
		}
	}
	return all, nil
}

// Kill kills all processes of the group except this one, and returns when they have died.
func (g *Group) Kill(ctx context.Context) error {
	if g == nil {
		return nil
	}
	for ctx.Err() == nil {
		pids, err := g.PIDs()
		if err != nil {
			return err
		}
		var ids []procid.ID
		for _, pid := range pids {
			// A pid of another namespace reads as 0.
			if pid <= 1 || pid == os.Getpid() {
				continue
			}
			if id, err := procid.Of(pid); err == nil {
				ids = append(ids, id)
			}
		}
		if len(ids) == 0 {
			return nil
		}
		// All at once, if the kernel can: a process that forks cannot escape then. Otherwise repeat until none is left.
		if dir := g.dirs[0]; !unified(dir) || write(dir, "cgroup.kill", "1") != nil {
			for _, id := range ids {
				_ = id.Signal(unix.SIGKILL) // it may have died
			}
		}
		for _, id := range ids {
			if err := id.Wait(ctx); err != nil && !errors.Is(err, procid.ErrGone) {
				return fmt.Errorf("kill a cgroup's processes: %w", err)
			}
		}
	}
	return fmt.Errorf("kill a cgroup's processes: %w", ctx.Err())
}

// Delete removes the group. It waits for the end of its last process until ctx ends. It is idempotent.
func (g *Group) Delete(ctx context.Context) error {
	if g == nil {
		return nil
	}
	for _, dir := range g.dirs {
		if err := remove(ctx, dir); err != nil {
			return fmt.Errorf("remove a cgroup: %w", err)
		}
		weigh(filepath.Dir(dir))
	}
	return nil
}

// KillAndDelete kills the group's processes and removes it.
func (g *Group) KillAndDelete(ctx context.Context) error {
	if err := g.Kill(ctx); err != nil {
		return err
	}
	return g.Delete(ctx)
}

// remove removes the directories that can be removed at once.
func (g *Group) remove() {
	for _, dir := range g.dirs {
		_ = os.Remove(dir)
	}
}

// emptyRetry is the interval of tries to remove an older controller's group. The only notification of an empty group
// goes to one program for the whole host (the release agent). The awaited processes have died already.
const emptyRetry = 2 * time.Millisecond

func remove(ctx context.Context, dir string) error {
	for {
		err := unix.Rmdir(dir)
		switch {
		case err == nil || gone(err):
			return nil
		case !errors.Is(err, unix.EBUSY):
			return fmt.Errorf("%s: %w", dir, err)
		case unified(dir):
			err = waitEmpty(ctx, dir)
		default:
			err = nil
			select {
			case <-time.After(emptyRetry):
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if err != nil {
			return fmt.Errorf("%s: there are still processes in it: %w", dir, err)
		}
	}
}

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }
