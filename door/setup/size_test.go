package setup

import (
	"strings"
	"testing"
)

// TestSize: a flag takes precedence over the environment, and the error for an invalid value names its source.
func TestSize(t *testing.T) {
	for _, c := range []struct {
		name, memory, cpus, memoryEnv, cpusEnv string
		mib, vcpus                             int
		err                                    string
	}{
		{name: "nothing"},
		{name: "settings", memory: "2Gi", cpus: "2", mib: 2048, vcpus: 2},
		{name: "environment", memoryEnv: "300Mi", cpusEnv: "4", mib: 300, vcpus: 4},
		{name: "both", memory: "1G", cpus: "1", memoryEnv: "300Mi", cpusEnv: "4", mib: 953, vcpus: 1},
		{name: "little", memory: "255Mi", err: `default memory "255Mi" must be a quantity of at least 256Mi`},
		{name: "not a quantity", memoryEnv: "much", err: "BULKHEAD_DEFAULT_MEMORY"},
		{name: "much", memory: "9E", err: "must be a quantity"},
		{name: "no CPU", cpus: "0", err: `default CPUs "0" must be a number from 1 to 64`},
		{name: "half a CPU", cpusEnv: "0.5", err: "BULKHEAD_DEFAULT_CPUS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(memoryVariable, c.memoryEnv)
			t.Setenv(cpusVariable, c.cpusEnv)
			mib, vcpus, err := Size(c.memory, c.cpus)
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v", err)
			}
			if err == nil && (mib != c.mib || vcpus != c.vcpus) {
				t.Errorf("%d MiB, %d CPUs", mib, vcpus)
			}
		})
	}
}
