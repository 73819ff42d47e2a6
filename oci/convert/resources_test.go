package convert

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

func TestResources(t *testing.T) {
	for text, want := range map[string]struct {
		guest, host string
		demand      sizing.Demand
		notes       int
	}{
		`{}`: {guest: `{}`, host: `{}`},
		// A client that changes one limit sends 0 for the others.
		`{"memory":{"limit":64,"swap":0,"reservation":0},"cpu":{"shares":0,"quota":0,"period":0,"cpus":"","mems":""},
			"pids":{"limit":0},"blockIO":{}}`: {
			guest: `{"memory":{"limit":64}}`, host: `{"memory":{"limit":64}}`, demand: sizing.Demand{MemoryLimit: 64},
		},
		`{"memory":{"limit":64,"swap":64}}`: {
			guest: `{"memory":{"limit":64}}`, host: `{"memory":{"limit":64}}`, demand: sizing.Demand{MemoryLimit: 64},
		},
		`{"memory":{"limit":64,"swap":128}}`: {
			guest: `{"memory":{"limit":64}}`, host: `{"memory":{"limit":64}}`, demand: sizing.Demand{MemoryLimit: 64}, notes: 1,
		},
		`{"memory":{"limit":-1,"swap":-1}}`: {
			guest: `{"memory":{"limit":-1}}`, host: `{"memory":{"limit":-1}}`, demand: sizing.Demand{MemoryLimit: -1}, notes: 1,
		},
		`{"cpu":{"quota":5,"period":10,"shares":7,"cpus":"0-1","realtimeRuntime":3},"pids":{"limit":-1}}`: {
			guest: `{"cpu":{"shares":7,"quota":5,"period":10},"pids":{"limit":-1}}`, notes: 1,
			demand: sizing.Demand{Quota: 5, Period: 10, Shares: 7},
			host:   `{"cpu":{"shares":7,"quota":5,"period":10,"cpus":"0-1"},"pids":{"limit":-1}}`,
		},
		`{"cpu":{"mems":"0","burst":9,"idle":1}}`: {
			guest: `{"cpu":{"burst":9,"idle":1}}`, host: `{"cpu":{"burst":9,"mems":"0","idle":1}}`,
		},
		`{"cpu":{"burst":9},"unified":{"cpu.max.burst":"8","memory.high":"1"}}`: {
			guest: `{"cpu":{"burst":9},"unified":{"cpu.max.burst":"8","memory.high":"1"}}`,
			host:  `{"cpu":{"burst":9},"unified":{"cpu.max.burst":"8","memory.high":"1"}}`,
		},
		`{"devices":[{"allow":false,"access":"rwm"}],"network":{"classID":1},"rdma":{"a":{"hcaHandles":1}},
			"hugepageLimits":[{"pageSize":"2MB","limit":0}]}`: {
			guest: `{"hugepageLimits":[{"pageSize":"2MB","limit":0}]}`, host: `{"hugepageLimits":[{"pageSize":"2MB","limit":0}]}`, notes: 2,
		},
	} {
		r := &specs.LinuxResources{}
		if err := json.Unmarshal([]byte(text), r); err != nil {
			t.Fatal(err)
		}
		u, err := Resources(r, false)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		guest, err1 := json.Marshal(u.Guest)
		host, err2 := json.Marshal(u.Host)
		if err := errors.Join(err1, err2); err != nil || string(guest) != want.guest || string(host) != want.host {
			t.Errorf("%s: guest %s, host %s, %v", text, guest, host, err)
		}
		if u.Demand != want.demand || len(u.Ignored) != want.notes {
			t.Errorf("%s: demand %+v, ignored %v", text, u.Demand, u.Ignored)
		}
		if _, err := Resources(r, true); (err == nil) != (want.notes == 0) {
			t.Errorf("%s: strictly %v", text, err)
		}
	}
	if u, err := Resources(nil, true); err != nil || u.Demand != (sizing.Demand{}) {
		t.Errorf("%+v, %v", u, err)
	}
	low, high := int64(1), int64(2)
	_, err := Resources(&specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &high, Swap: &low}}, false)
	if !errors.Is(err, oci.ErrInvalid) || !strings.Contains(err.Error(), "resources.memory.swap") {
		t.Error(err)
	}
}
