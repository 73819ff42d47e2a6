package setup

import (
	"cmp"
	"fmt"
	"os"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// The environment's word on the VMs of pods that state no limit.
const (
	memoryVariable = "BULKHEAD_DEFAULT_MEMORY"
	cpusVariable   = "BULKHEAD_DEFAULT_CPUS"
)

// leastMemory is the least default, in MiB: of less, a guest leaves its containers too little.
const leastMemory = 256

// Size reads the size of the VMs of pods that state no limit: memory is a quantity as "2Gi", cpus a number. Empty ones
// are those of BULKHEAD_DEFAULT_MEMORY and BULKHEAD_DEFAULT_CPUS, and without these 0, which is what fits the host.
func Size(memory, cpus string) (memoryMiB, vcpus int, err error) {
	if text := cmp.Or(memory, os.Getenv(memoryVariable)); text != "" {
		q, err := resource.ParseQuantity(text)
		mib := q.Value() >> 20
		if err != nil || mib < leastMemory || mib > 1<<30 {
			return 0, 0, fmt.Errorf("default memory %q must be a quantity of at least %dMi, such as 2Gi (default-memory, %s)",
				text, leastMemory, memoryVariable)
		}
		memoryMiB = int(mib)
	}
	if text := cmp.Or(cpus, os.Getenv(cpusVariable)); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > sizing.MaxVCPUClass {
			return 0, 0, fmt.Errorf("default CPUs %q must be a number from 1 to %d (default-cpus, %s)", text, sizing.MaxVCPUClass, cpusVariable)
		}
		vcpus = n
	}
	return memoryMiB, vcpus, nil
}
