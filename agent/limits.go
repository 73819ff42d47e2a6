package agent

import (
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

// defaultPeriod is the kernel's default, in microseconds.
const defaultPeriod = 100_000

// limitPod brings CPUs online or offline, and then sets the limits of the cgroup above the containers'.
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

// threadBytes is the memory per thread from which the kernel computes its limit of threads at boot.
const threadBytes = 128 << 10

// growTasks raises the kernel's limit of threads with the memory that the VM has received since its boot, unless the
// pod has set the limit itself.
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

// agentTasks is the minimum that limitTasks reserves for the agent, if the kernel allows twice as many. othersTasks is
// the number that a container must leave to the others.
const (
	agentTasks  = 128
	othersTasks = 64
)

// limitTasks reserves an eighth of the kernel's threads for the kernel and the agent. An agent that cannot create a
// thread dies, and the VM with it. The containers together may have the rest.
func limitTasks() error {
	room, err := taskRoom()
	if err != nil {
		return fmt.Errorf("limit the pod's tasks: %w", err)
	}
	return cgroup.Dir(cgroup.Mount+boot.Pods).Limit("pids.max", room)
}

// taskRoom returns the number of threads for all containers.
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

// limitTasks keeps a container from using all threads of the pod, since an exec in another container needs some.
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

// burst sets the time in microseconds that a container may save up beyond its quota, which crun does not know; nil
// changes nothing.
func (c *container) burst(usec *uint64) error {
	if usec == nil {
		return nil
	}
	if err := c.cgroup.Limit("cpu.max.burst", *usec); err != nil {
		return fmt.Errorf("resources.cpu.burst of %d µs: %w", *usec, err)
	}
	return nil
}
