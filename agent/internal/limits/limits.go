// Package limits applies the limits and sysctls of a pod and its containers to the guest's kernel.
package limits

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/boot"
	"github.com/bulkhead-project/bulkhead/agent/internal/cgroup"
	"github.com/bulkhead-project/bulkhead/agent/internal/cpus"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// defaultPeriod is the kernel's default, in microseconds.
const defaultPeriod = 100_000

// Limits are the limits of the pod in this guest. The zero value has none. It is safe for concurrent use.
type Limits struct {
	threadsSet atomic.Bool // the pod has set kernel.threads-max

	hugePages sync.Mutex // held while their number changes
}

// Pod brings CPUs online or offline, and then sets the limits of the cgroup above the containers'.
func Pod(l agentv1.PodLimits) error {
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

// GrowTasks raises the kernel's limit of threads with the memory that the VM has received since its boot, unless the
// pod has set the limit itself.
func (l *Limits) GrowTasks() error {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return fmt.Errorf("sysinfo: %w", err)
	}
	const kernel = cgroup.Dir("/proc/sys/kernel")
	now, err := kernel.Value("threads-max")
	room := info.Totalram * uint64(info.Unit) / threadBytes
	if err != nil || l.threadsSet.Load() || room <= now {
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

// Tasks keeps a container from using all threads of the pod, since an exec in another container needs some.
func Tasks(container cgroup.Dir) error {
	room, err := taskRoom()
	if err != nil {
		return fmt.Errorf("limit its tasks: %w", err)
	}
	room -= min(othersTasks, room/4)
	if own, err := container.Value("pids.max"); err == nil && own <= room {
		return nil
	}
	return container.Limit("pids.max", room)
}

// Burst sets the time in microseconds that a container may save up beyond its quota, which crun does not know; nil
// changes nothing.
func Burst(container cgroup.Dir, usec *uint64) error {
	if usec == nil {
		return nil
	}
	if err := container.Limit("cpu.max.burst", *usec); err != nil {
		return fmt.Errorf("resources.cpu.burst of %d µs: %w", *usec, err)
	}
	return nil
}

// Sysctls writes below /proc/sys. Names have dots or slashes as separators.
func (l *Limits) Sysctls(values map[string]string) error {
	for name, value := range values {
		path := name
		if strings.ReplaceAll(name, "/", ".") == "kernel.threads-max" {
			l.threadsSet.Store(true)
		}
		if !strings.Contains(name, "/") {
			path = strings.ReplaceAll(name, ".", "/")
		}
		if path == "" || !filepath.IsLocal(path) {
			return fmt.Errorf("sysctl %.64q: %w", name, errdefs.ErrInvalidArgument)
		}
		f, err := os.OpenFile(filepath.Join("/proc/sys", path), os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(value)
			f.Close()
		}
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EINVAL) {
			err = fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
		}
		if err != nil {
			return fmt.Errorf("sysctl %.64s: %w", name, err)
		}
	}
	if len(values) == 0 {
		return nil
	}
	return limitTasks() // the kernel's limits may have changed
}
