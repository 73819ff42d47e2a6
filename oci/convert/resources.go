package convert

import (
	"math"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bulkhead-project/bulkhead/oci/fields"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// Update is a change of a container's resources. Unset fields mean no change.
type Update struct {
	// Guest are the resources for the guest, and Host for the group on the host.
	Guest, Host *specs.LinuxResources
	// Demand has the stated limits; 0 means no change.
	Demand  sizing.Demand
	Ignored []Note
}

// Resources converts the resources of an update. Errors are as in Bundle.
func Resources(r *specs.LinuxResources, strict bool) (*Update, error) {
	n := notes{strict: strict}
	guest, host, err := n.resources(r, "resources")
	if err != nil {
		return nil, err
	}
	// Clients repeat the rules of the container's creation.
	guest.Devices, host.Devices = nil, nil
	return &Update{Guest: guest, Host: host, Demand: demandOf(guest), Ignored: n.list}, nil
}

// resourcesField is the path of a specification's resources.
const resourcesField = "linux.resources"

// resources converts the resources of the specification.
func (c *conversion) resources() error {
	rules := c.linux.Resources.Devices
	guest, host, err := c.notes.resources(c.host.Resources, resourcesField)
	if err != nil {
		return err
	}
	guest.Devices, host.Devices = rules, nil
	c.linux.Resources, c.plan.Resources = guest, host
	c.plan.Demand = demandOf(guest)
	return nil
}

// resources returns the resources for the guest and for the host.
func (n *notes) resources(r *specs.LinuxResources, field string) (guest, host *specs.LinuxResources, err error) {
	if r == nil {
		return &specs.LinuxResources{}, &specs.LinuxResources{}, nil
	}
	// The guest satisfies a total without room for swap.
	without := false
	if m := r.Memory; m != nil && m.Limit != nil && m.Swap != nil && *m.Limit > 0 {
		if *m.Swap > 0 && *m.Swap < *m.Limit {
			return nil, nil, invalid(field+".memory.swap", "the total of %d is less than the memory limit of %d", *m.Swap, *m.Limit)
		}
		without = *m.Swap == *m.Limit
	}
	guest = fields.Select(r, field, func(path string, e fields.Entry) {
		if !without || path != field+".memory.swap" {
			n.report(path, e)
		}
	})
	if n.err != nil {
		return nil, nil, n.err
	}
	if err := n.limits(guest, field); err != nil {
		return nil, nil, err
	}
	host = fields.Copy(guest)
	if r.CPU != nil && r.CPU.Cpus+r.CPU.Mems != "" {
		if host.CPU == nil {
			host.CPU = &specs.LinuxCPU{}
		}
		host.CPU.Cpus, host.CPU.Mems = r.CPU.Cpus, r.CPU.Mems
	}
	return guest, host, nil
}

// limits checks the limits, and removes those that state none.
func (n *notes) limits(r *specs.LinuxResources, field string) error {
	if cpu := r.CPU; cpu != nil {
		unset(&cpu.Shares)
		unset(&cpu.Quota)
		unset(&cpu.Period)
		unset(&cpu.Burst)
		unset(&cpu.Idle)
		switch {
		case cpu.Period != nil && *cpu.Period > math.MaxInt64:
			return invalid(field+".cpu.period", "%d", *cpu.Period)
		case cpu.Idle != nil && *cpu.Idle != 1:
			return invalid(field+".cpu.idle", "%d must be 0 or 1", *cpu.Idle)
		}
		if *cpu == (specs.LinuxCPU{}) {
			r.CPU = nil
		}
	}
	if m := r.Memory; m != nil {
		unset(&m.Limit)
		unset(&m.Reservation)
		if m.Limit != nil && *m.Limit < -1 || m.Reservation != nil && *m.Reservation < -1 {
			return invalid(field+".memory", "a limit of less than -1")
		}
		if *m == (specs.LinuxMemory{}) {
			r.Memory = nil
		}
	}
	if r.Pids != nil {
		if unset(&r.Pids.Limit); r.Pids.Limit == nil {
			r.Pids = nil
		}
	}
	for name, value := range r.Unified {
		if name == "" || strings.ContainsAny(name, "/\n") || !strings.Contains(name, ".") || strings.HasPrefix(name, ".") {
			return invalid(field+".unified", "%.64q must be the name of a file of a cgroup", name)
		}
		if strings.HasPrefix(name, "cgroup.") {
			return unsupported(field+".unified", "%.64q: only limits of controllers", name)
		}
		if len(value) > 4096 {
			return invalid(field+".unified", "the value of %.64q is longer than 4096 bytes", name)
		}
	}
	return nil
}

// unset removes a number that is 0.
func unset[T int64 | uint64](p **T) {
	if *p != nil && **p == 0 {
		*p = nil
	}
}

// demandOf returns the stated limits.
func demandOf(r *specs.LinuxResources) (d sizing.Demand) {
	if cpu := r.CPU; cpu != nil {
		d.Quota, d.Period, d.Shares = value(cpu.Quota), value(cpu.Period), value(cpu.Shares)
	}
	if r.Memory != nil {
		d.MemoryLimit = value(r.Memory.Limit)
	}
	return d
}

// value returns the number, or 0.
func value[T int64 | uint64](p *T) T {
	if p == nil {
		return 0
	}
	return *p
}
