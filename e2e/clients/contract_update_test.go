package clients

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

var updateCases = []contractCase{
	{"resources", resources},
	{"update", update},
}

// limitsScript prints the limits of memory, of processors in hundredths and of processes, with either version of cgroups.
const limitsScript = `cd /sys/fs/cgroup
	cat memory.max memory/memory.limit_in_bytes 2>/dev/null
	if test -e cpu.max; then set -- $(cat cpu.max); else set -- $(cat cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us); fi
	case $1 in max|-1) echo none;; *) echo $(($1 * 100 / $2));; esac
	cat pids.max pids/pids.max 2>/dev/null
	true`

const mib = 1 << 20

// eater is a script that takes more and more memory.
const eater = "x=x; while :; do x=$x$x; done"

func resourcesOf(memory, quota, pids int64) *specs.LinuxResources {
	period := uint64(100_000)
	return &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: &memory}, CPU: &specs.LinuxCPU{Quota: &quota, Period: &period}, Pids: &specs.LinuxPids{Limit: &pids},
	}
}

// resources: the limits of the specification are in force, and visible in the container.
func resources(ctx context.Context, t *testing.T, c *contract) {
	spec := script(limitsScript + "\nsh -c '" + eater + "' 2>/dev/null; echo $?")
	spec.Linux.Resources = resourcesOf(64*mib, 50_000, 20)
	k := c.start(ctx, t, "c", spec)
	k.expectExit(ctx, t, 0)
	if got, want := k.stdout.all(ctx, t), "67108864\n50\n20\n137\n"; got != want {
		t.Errorf("limits, and the end of a program that takes too much: %q, want %q", got, want)
	}
}

// update: podman gives a file, containerd's shim the standard input, and people flags.
func update(ctx context.Context, t *testing.T, c *contract) {
	c.start(ctx, t, "c", newSpec("sleep", "1000"))
	file := filepath.Join(c.dir, "resources.json")
	writeJSON(t, file, resourcesOf(64*mib, 50_000, 20))
	c.do(ctx, t, "update", "--resources="+file, "c")
	expect := func(want string) {
		t.Helper()
		if got := c.exec(ctx, t, "c", limitsScript); got != want {
			t.Errorf("limits %q, want %q", got, want)
		}
	}
	expect("67108864\n50\n20\n")
	writeJSON(t, file, resourcesOf(96*mib, 75_000, 30))
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if r := c.runInput(ctx, t, string(text), "update", "--resources", "-", "c"); r.code != 0 {
		t.Errorf("update by the standard input: %+v", r)
	}
	expect("100663296\n75\n30\n")
	c.do(ctx, t, strings.Fields("update --memory 134217728 --cpu-quota 25000 --cpu-period 50000 --pids-limit 40 c")...)
	expect("134217728\n50\n40\n")
	if r := c.runInput(ctx, t, "{", "update", "-r", "-", "c"); r.code != 1 || r.logged == "" {
		t.Errorf("update with a broken document: %+v", r)
	}
}
