package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
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
