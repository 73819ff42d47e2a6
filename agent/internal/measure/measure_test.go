package measure

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/agent/internal/cgroup"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/guesttree"
)

func TestUsageParsers(t *testing.T) {
	const dev = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
  eth0:    5000      10    1    0    0     0          0         0     7000      12    2    0    0     0       0          0
  own0:       1       1    1    0    0     0          0         0        1       1    1    0    0     0       0          0
  net1:      50       1    0    0    0     0          0         0       70       1    0    0    0     0       0          0
`
	want := &agentv1.NetUsage{Name: "eth0", RxBytes: 5000, RxErrors: 1, TxBytes: 7000, TxErrors: 2}
	first, further := parseNetDev(dev, []agentv1.Network{{Name: "net1"}, {Name: "gone"}})
	if diff := cmp.Diff(want, first); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]agentv1.NetUsage{{Name: "net1", RxBytes: 50, TxBytes: 70}}, further); diff != "" {
		t.Error(diff)
	}
	for _, none := range []string{"", "lo: 1 2", "eth0 1 2 3", "eth0: 1 2 3"} {
		if got, more := parseNetDev(none, nil); got != nil || more != nil {
			t.Errorf("%q: %+v, %+v", none, got, more)
		}
	}
	const disks = ` 254       0 vda 10 0 20 5 30 0 40 6 0 1 1
 254      16 vdb 1 0 2 5 3 0 4 6 0 1 1 0 0 0 0 0 0
   7       0 loop0 1 0 200 5 3 0 400 6 0 1 1
 254      32 vdc broken
`
	if got := parseDiskstats(disks); got != (agentv1.DiskUsage{ReadBytes: 22 * 512, WriteBytes: 44 * 512}) {
		t.Errorf("%+v", got)
	}
}

func TestParseMeminfo(t *testing.T) {
	t.Parallel()
	got := parseMeminfo("MemTotal:  1000 kB\nMemFree: 5 kB\nMemAvailable: 400 kB\nbroken\nX: y kB\n")
	if got != (agentv1.Memory{Total: 1000 << 10, Available: 400 << 10}) {
		t.Errorf("%+v", got)
	}
}

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	total := uint64(parseMeminfo(string(data)).Total)
	for text, want := range map[string]uint64{"4096\n": 4096, "max\n": total, "9000000000000000000\n": total} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "memory.max"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := MemoryLimit(cgroup.Dir(dir)); got != want {
			t.Errorf("memory.max %q: got %d, want %d", text, got, want)
		}
	}
}

// TestTreeEnds: measuring a container's writes is bounded.
func TestTreeEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", 3*guesttree.MaxLevels)), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, n := Tree(t.Context(), dir); n != guesttree.MaxLevels+1 {
		t.Errorf("%d directories of a deep tree, with the first that is not entered", n)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, n := Tree(ended, dir); n != 1 {
		t.Errorf("%d directories after the end", n)
	}
}
