package command

import (
	"fmt"

	"github.com/docker/go-units"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/spf13/cobra"
)

// updateFlags are the flags of update.
type updateFlags struct {
	file                  string
	cpus, mems            string
	memory, swap, reserve string
	period, shares        uint64
	quota, pids           int64
	weight                uint16
	kernel, kernelTCP     string
	periodRT              uint64
	runtimeRT             int64
}

func newUpdate() *updateFlags { return &updateFlags{} }

func (u *updateFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&u.file, "resources", "r", "", "file with the limits in JSON; - is stdin")
	f.Uint64Var(&u.period, "cpu-period", 0, "CPU period in microseconds")
	f.Int64Var(&u.quota, "cpu-quota", 0, "CPU time in each period in microseconds")
	f.Uint64Var(&u.shares, "cpu-share", 0, "CPU weight, 1024 for a container")
	f.StringVar(&u.cpus, "cpuset-cpus", "", "CPUs of the guest")
	f.StringVar(&u.mems, "cpuset-mems", "", "memory nodes of the guest")
	f.StringVar(&u.memory, "memory", "", "memory limit")
	f.StringVar(&u.reserve, "memory-reservation", "", "memory reservation")
	f.StringVar(&u.swap, "memory-swap", "", "accepted; guests have no swap")
	f.Int64Var(&u.pids, "pids-limit", 0, "most processes")
	f.Uint16Var(&u.weight, "blkio-weight", 0, "accepted; it has no effect")
	f.StringVar(&u.kernel, "kernel-memory", "", "accepted; it has no effect")
	f.StringVar(&u.kernelTCP, "kernel-memory-tcp", "", "accepted; it has no effect")
	f.Uint64Var(&u.periodRT, "cpu-rt-period", 0, "accepted; it has no effect")
	f.Int64Var(&u.runtimeRT, "cpu-rt-runtime", 0, "accepted; it has no effect")
}

// resources sets the limits of the flags.
func (u *updateFlags) resources(r *specs.LinuxResources) error {
	cpu, memory := &specs.LinuxCPU{Cpus: u.cpus, Mems: u.mems}, &specs.LinuxMemory{}
	if u.period != 0 {
		cpu.Period = &u.period
	}
	if u.quota != 0 {
		cpu.Quota = &u.quota
	}
	if u.shares != 0 {
		cpu.Shares = &u.shares
	}
	for _, one := range []struct {
		name, text string
		to         **int64
	}{{"memory", u.memory, &memory.Limit}, {"memory-reservation", u.reserve, &memory.Reservation}} {
		if one.text == "" {
			continue
		}
		n, err := units.RAMInBytes(one.text)
		if err != nil {
			return fmt.Errorf("invalid value for %s: %w", one.name, err)
		}
		*one.to = &n
	}
	r.CPU, r.Memory = cpu, memory
	if u.pids != 0 {
		r.Pids = &specs.LinuxPids{Limit: &u.pids}
	}
	return nil
}
