package convert

import (
	"math"
	"strconv"

	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// The annotations for the size of a VM.
const (
	annotationCPUs   = prefix + "cpus"
	annotationMemory = prefix + "memory" // MiB

	kataCPUs   = kataPrefix + "config.hypervisor.default_vcpus"
	kataMemory = kataPrefix + "config.hypervisor.default_memory" // MiB

	criPeriod = criPrefix + "sandbox-cpu-period"
	criQuota  = criPrefix + "sandbox-cpu-quota"
	criShares = criPrefix + "sandbox-cpu-shares"
	criMemory = criPrefix + "sandbox-memory" // bytes
)

// The bounds of stated sizes.
const (
	mostCPUs   = 4096
	mostMemory = 1 << 24 // MiB
)

// The size of a VM if neither the client nor the administrator states one.
const (
	DefaultVCPUs     = 2
	DefaultMemoryMiB = 1024
)

// DefaultSize is the demand of a VM with the default size.
var DefaultSize = SizeOf(DefaultVCPUs, DefaultMemoryMiB)

// SizeOf returns the demand for a VM with that many CPUs, without a limit of their time, and that much memory.
func SizeOf(vcpus, memoryMiB int) sizing.Demand {
	return sizing.Demand{Shares: uint64(max(vcpus, 1)) * 1024, MemoryLimit: memoryOf(int64(memoryMiB))}
}

// memoryOf returns the demand for a VM of that many MiB, which include the guest's own needs.
func memoryOf(mib int64) int64 { return max(mib-int64(sizing.Default.OverheadMiB), 1) << 20 }

// size computes the size of the VM. The first source that states the CPUs counts for them, and likewise for the memory.
func (c *conversion) size() error {
	named, err := c.namedSize()
	if err != nil {
		return err
	}
	cri, err := c.criSize()
	if err != nil {
		return err
	}
	if c.plan.Kind == oci.Container {
		return nil
	}
	for _, d := range []sizing.Demand{named, cri, c.hardware(), c.plan.Demand, c.Defaults} {
		size := &c.plan.Size
		if size.Quota <= 0 && size.Shares <= 2 && (d.Quota > 0 || d.Shares > 2) {
			size.Quota, size.Period, size.Shares = d.Quota, d.Period, d.Shares
		}
		if size.MemoryLimit <= 0 && d.StatesMemory() {
			size.MemoryLimit = d.MemoryLimit
		}
	}
	return nil
}

// namedSize reads Bulkhead's annotations, and then Kata's.
func (c *conversion) namedSize() (d sizing.Demand, err error) {
	for _, name := range []string{annotationCPUs, kataCPUs} {
		text, ok := c.spec.Annotations[name]
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n > 0 && n <= mostCPUs) {
			return d, invalid("annotations."+name, "%.64q must be a number of CPUs", text)
		}
		if d.Quota == 0 {
			const period = 100_000
			d.Quota, d.Period = int64(math.Ceil(n))*period, period
		}
	}
	for _, name := range []string{annotationMemory, kataMemory} {
		mib, ok, err := c.number(name, mostMemory)
		if err != nil {
			return d, err
		}
		if ok && d.MemoryLimit == 0 {
			d.MemoryLimit = memoryOf(mib)
		}
	}
	return d, nil
}

// criSize reads the annotations that containerd's CRI plugin writes for a pod.
func (c *conversion) criSize() (d sizing.Demand, err error) {
	var period, shares int64
	for _, one := range []struct {
		name string
		to   *int64
	}{{criPeriod, &period}, {criQuota, &d.Quota}, {criShares, &shares}, {criMemory, &d.MemoryLimit}} {
		if *one.to, _, err = c.number(one.name, math.MaxInt64); err != nil {
			return d, err
		}
	}
	d.Period, d.Shares = uint64(max(period, 0)), uint64(max(shares, 0))
	return d, nil
}

// number reads an annotation. A value above most, or a negative one with a bound, is an error.
func (c *conversion) number(name string, most int64) (n int64, ok bool, err error) {
	text, ok := c.spec.Annotations[name]
	if !ok {
		return 0, false, nil
	}
	n, err = strconv.ParseInt(text, 10, 64)
	if err != nil || n > most || n < 1 && most < math.MaxInt64 {
		return 0, false, invalid("annotations."+name, "%.64q", text)
	}
	return n, true, nil
}

// hardware reads vm.hwConfig.
func (c *conversion) hardware() (d sizing.Demand) {
	config := c.vm().HwConfig
	if config == nil {
		return d
	}
	if n := config.VCPUs; n != nil && *n > 0 {
		d.Quota, d.Period = int64(*n)*100_000, 100_000
	}
	if bytes := config.Memory; bytes != nil && *bytes > 0 {
		d.MemoryLimit = memoryOf(int64(min(*bytes>>20, mostMemory)))
	}
	return d
}
