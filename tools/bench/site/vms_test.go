package site

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/tools/bench/procs"
)

// TestFind expects a fork and a clone with their shims, and the warm parent apart from both.
func TestFind(t *testing.T) {
	const forked, cloned = "0123456789abcdef", "fedcba9876543210"
	lines := map[int]string{
		2: "/bin/bulkhead-engine",
		3: "/usr/bin/qemu-system-x86_64 -name bulkhead-bulkhead-cccccccccccc -m 1", // the parent
		4: "/usr/bin/qemu-system-x86_64 -name bulkhead-bulkhead-0123456789ab -m 1",
		5: "/bin/bulkhead-shim sandbox " + forked,
		6: "/bin/bulkhead-shim sandbox " + cloned,
		7: "/usr/bin/qemu-system-x86_64 -name bulkhead-bulkhead-fedcba987654 -m 1",
		8: "/bin/bulkhead-shim sandbox alone",
		9: "/usr/bin/qemu-system-x86_64 -name bulkhead-bulkhead-0123456789ab -m 1", // another site's VM
	}
	all := []procs.Process{{PID: 2, Parent: 1}, {PID: 9, Parent: 1}}
	for _, pid := range []int{3, 4, 5, 6, 8} {
		all = append(all, procs.Process{PID: pid, Parent: 2})
	}
	all = append(all, procs.Process{PID: 7, Parent: 6}, procs.Process{PID: 10, Parent: 2, Zombie: true})
	got := find(all,
		func(p procs.Process) bool { return p.PID == 2 },
		func(pid int) []string { return strings.Fields(lines[pid]) },
		func(pid int) bool { return pid == 3 })
	want := map[string]VM{
		forked: {forked, procs.Process{PID: 5, Parent: 2}, procs.Process{PID: 4, Parent: 2}},
		cloned: {cloned, procs.Process{PID: 6, Parent: 2}, procs.Process{PID: 7, Parent: 6}},
	}
	if diff := cmp.Diff(want, got.pods); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]procs.Process{{PID: 3, Parent: 2}}, got.parents); diff != "" {
		t.Error(diff)
	}
}

func TestVMName(t *testing.T) {
	for line, want := range map[string]string{
		"/usr/bin/qemu-system-x86_64 -name a -m 1": "a",
		"/usr/bin/qemu-system-x86_64 -m 1 -name":   "",
		"/bin/sh -name a":                          "",
		"":                                         "",
	} {
		if got := vmName(strings.Fields(line)); got != want {
			t.Errorf("%q: %q instead of %q", line, got, want)
		}
	}
}

// TestBuilds distinguishes builds by what they keep ready.
func TestBuilds(t *testing.T) {
	s, err := Open(Options{Bin: "/nowhere", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if s.forks || s.pool != 1 {
		t.Errorf("an older build: %+v", s)
	}
	if err := s.complete(nil); err == nil {
		t.Error("a pool of none is complete")
	}
	s.forks, s.pool = true, 0
	if err := s.complete(nil); err == nil {
		t.Error("forks without a parent are complete")
	}
	if s, err = Open(Options{Bin: "/nowhere", Dir: t.TempDir(), Clones: true}); err != nil {
		t.Fatal(err)
	}
	if err := s.complete(nil); err != nil {
		t.Errorf("clones need nothing: %v", err)
	}
}
