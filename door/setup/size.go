package setup

import (
	"cmp"
	"fmt"
	"os"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// Environment variables for the VM size of pods without limits.
const (
	memoryVariable = "BULKHEAD_DEFAULT_MEMORY"
	cpusVariable   = "BULKHEAD_DEFAULT_CPUS"
)

// leastMemory is the smallest default, in MiB. With less, a guest leaves its containers too little.
const leastMemory = 256

// Size parses the VM size of pods without limits. memory is a quantity such as "2Gi", and cpus a number. Empty values
// default to BULKHEAD_DEFAULT_MEMORY and BULKHEAD_DEFAULT_CPUS. Without these, the results are 0, which means a size
// that fits the host.
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
