package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/boot"
	"github.com/bulkhead-project/bulkhead/agent/internal/cgroup"
	"github.com/bulkhead-project/bulkhead/agent/internal/cpus"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// defaultPeriod is the kernel's, in microseconds.
const defaultPeriod = 100_000

// limitPod sets the cgroup that holds those of the pod's containers, after it has brought
// CPUs online, or taken them away.
func limitPod(l agentv1.PodLimits) error {
	if l.VCPUs > 0 {
		if err := cpus.Set(cpus.Dir, l.VCPUs); err != nil {
			return err
		}
	}
	memory, cpu := "max", "max"
	if l.MemoryBytes > 0 {
		memory = strconv.FormatInt(l.MemoryBytes, 10)
	}
	period := l.CPUPeriod
	if period <= 0 {
		period = defaultPeriod
	}
	if l.CPUQuota > 0 {
		cpu = strconv.FormatInt(l.CPUQuota, 10)
	}
	for file, value := range map[string]string{"memory.max": memory, "cpu.max": cpu + " " + strconv.FormatInt(period, 10)} {
		if err := os.WriteFile(filepath.Join(cgroup.Mount+boot.Pods, file), []byte(value), 0); err != nil {
			return fmt.Errorf("limit the pod: %w", err)
		}
	}
	return limitTasks()
}

// threadBytes is the memory that the kernel asks for each thread when it sets its own bound at
// the boot.
const threadBytes = 128 << 10

// growTasks raises the kernel's bound of threads with the memory that the machine has been given
// since its boot, unless the pod has set the bound itself.
func (a *Agent) growTasks() error {
	a.mu.Lock()
	set := a.threadsSet
	a.mu.Unlock()
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return fmt.Errorf("sysinfo: %w", err)
	}
	const kernel = cgroup.Dir("/proc/sys/kernel")
	now, err := kernel.Value("threads-max")
	room := info.Totalram * uint64(info.Unit) / threadBytes
	if err != nil || set || room <= now {
		return err
	}
	if err := kernel.Limit("threads-max", room); err != nil {
		return fmt.Errorf("raise the limit of threads: %w", err)
	}
	return limitTasks()
}

// agentTasks are the least that limitTasks leaves to the agent, where the kernel
// can have twice as many, and othersTasks what a container leaves to the others.
const (
	agentTasks  = 128
	othersTasks = 64
)

// limitTasks leaves an eighth of the threads that the kernel can have to itself
// and the agent, which dies, and the machine with it, when it cannot have another:
// the containers together may have the rest.
func limitTasks() error {
	room, err := taskRoom()
	if err != nil {
		return fmt.Errorf("limit the pod's tasks: %w", err)
	}
	return cgroup.Dir(cgroup.Mount+boot.Pods).Limit("pids.max", room)
}

// taskRoom is how many threads the containers may have.
func taskRoom() (uint64, error) {
	var most uint64
	for _, name := range []string{"threads-max", "pid_max"} {
		n, err := cgroup.Dir("/proc/sys/kernel").Value(name)
		if err != nil {
			return 0, err
		}
		if most == 0 || n < most {
			most = n
		}
	}
	return most - min(max(most/8, agentTasks), most/2), nil
}

// limitTasks keeps a container from taking all that the pod's may have: who execs
// in another one needs some.
func (c *container) limitTasks() error {
	room, err := taskRoom()
	if err != nil {
		return fmt.Errorf("limit its tasks: %w", err)
	}
	room -= min(othersTasks, room/4)
	if own, err := c.cgroup.Value("pids.max"); err == nil && own <= room {
		return nil
	}
	return c.cgroup.Limit("pids.max", room)
}

// limitScratch leaves room for that many bytes on the scratch disk, if it is
// mounted; mount does it for one that comes later.
func (a *Agent) limitScratch(room int64) error {
	a.mu.Lock()
	d := a.disks[scratch]
	mounted := d != nil && d.ready
	a.mu.Unlock()
	if !mounted {
		return nil
	}
	return ballast(scratchDir, room)
}

// ballastFile takes what the pod may not use.
const ballastFile = ".ballast"

// ballast gives a file as much of a file system's space as is more than room, of
// which what lies there already takes its part; 0 takes none. Nothing is written:
// blocks are only counted as taken, so that the host's file stays as small as it is.
func ballast(dir string, room int64) error {
	at := filepath.Join(dir, ballastFile)
	if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if room <= 0 {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("statfs %s: %w", dir, err)
	}
	used := int64(st.Blocks-st.Bfree) * st.Bsize
	spare := int64(st.Bavail)*st.Bsize - max(0, room-used)
	if spare <= 0 {
		return nil
	}
	f, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, spare)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("reserve %d bytes of %s: %w", spare, dir, err)
	}
	return nil
}
