package cgroup

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMake writes the files of a directory that is not a cgroup.
func TestMake(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]map[string]string{
		``: {}, `null`: {}, `{}`: {},
		`{"memory":{"limit":5,"swap":8,"reservation":3,"swappiness":null,"disableOOMKiller":false},"devices":[],"blockIO":{}}`: {
			"memory.max": "5", "memory.swap.max": "3", "memory.low": "3",
		},
		`{"memory":{"limit":-1,"swap":-1}}`:                      {"memory.max": "max", "memory.swap.max": "max"},
		`{"cpu":{"shares":2,"quota":5}}`:                         {"cpu.weight": "1", "cpu.max": "5 100000"},
		`{"cpu":{"shares":262144,"period":7,"burst":1}}`:         {"cpu.weight": "10000", "cpu.max": "max 7"},
		`{"cpu":{"shares":1024,"quota":-1,"cpus":"0","idle":0}}`: {"cpu.weight": "39", "cpuset.cpus": "0", "cpu.idle": "0"},
		`{"pids":{"limit":9},"hugepageLimits":[{"pageSize":"2MB","limit":4}],"unified":{"memory.high":"7"}}`: {
			"pids.max": "9", "hugetlb.2MB.max": "4", "memory.high": "7",
		},
		`{"pids":{"limit":-1},"cpu":{"mems":"0"}}`: {"pids.max": "max", "cpuset.mems": "0"},
	} {
		dir := filepath.Join(t.TempDir(), "c")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for file := range want { // as the kernel would
			if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		settings, err := parse(json.RawMessage(raw))
		if err == nil {
			err = Dir(dir).apply(settings)
		}
		if err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		got := map[string]string{}
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			content, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			got[f.Name()] = string(content)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", raw, diff)
		}
	}
}

// TestMakeRefuses leaves rare and invalid resources to crun.
func TestMakeRefuses(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		`1`, `{"memory":{"swap":5}}`, `{"memory":{"limit":5,"swap":4}}`, `{"memory":{"kernel":1}}`, `{"memory":{"disableOOMKiller":true}}`,
		`{"cpu":{"shares":1}}`, `{"cpu":{"shares":262145}}`, `{"cpu":{"realtimePeriod":1}}`, `{"blockIO":{"weight":5}}`,
		`{"network":{"classID":1}}`,
		`{"devices":[{"allow":false}]}`, `{"unified":{"../x":"1"}}`, `{"unified":{"cgroup.procs":"0"}}`,
		`{"hugepageLimits":[{"pageSize":"/","limit":1}]}`, `{"unknown":1}`,
		`{"pids":{"limit":"x"}}`, `{"cpu":{"cpus":"0"}}`, // there is no such file
	} {
		if err := Dir(filepath.Join(t.TempDir(), "c")).Make(json.RawMessage(raw)); err == nil {
			t.Errorf("%s is applied", raw)
		}
	}
	if err := Dir(t.TempDir()).Make(nil); err == nil {
		t.Error("an existing cgroup is taken")
	}
}
