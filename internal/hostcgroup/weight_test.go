package hostcgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOwnersWeight: the owner's directory has the sum of its groups' weights.
func TestOwnersWeight(t *testing.T) {
	h := realHost(t)
	if !h.Support().Has("cpu") {
		t.Skip("no controller of cpu for this user")
	}
	var last *Group
	for _, name := range []string{"a", "b", "c"} {
		g, err := h.Create(name, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		last = g
	}
	want := func(groups int64) {
		t.Helper()
		for _, dir := range h.Dirs("") {
			for file, ordinary := range map[string]int64{weightV1: ordinaryV1, weightV2: ordinaryV2} {
				if got, err := os.ReadFile(filepath.Join(dir, file)); err == nil && strings.TrimSpace(string(got)) != decimal(groups*ordinary) {
					t.Errorf("%s of %d groups is %s", file, groups, got)
				}
			}
		}
	}
	want(3)
	if err := last.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(2)
}

// TestWeight: of two groups that want one processor the heavier one gets more.
func TestWeight(t *testing.T) {
	h := realHost(t)
	if !h.Support().Has("cpu") {
		t.Skip("no controller of cpu for this user")
	}
	var one unix.CPUSet
	one.Set(0)
	burner := func(name string, weight int64) int {
		g, err := h.Create(name, Limits{Weight: weight})
		if err != nil {
			t.Fatal(err)
		}
		pid := start(t, g, "sh", "-c", "while :; do :; done").Process.Pid
		if err := unix.SchedSetaffinity(pid, &one); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	light, ordinary := burner("light", 25), burner("ordinary", 0)
	for began := time.Now(); ran(t, light)+ran(t, ordinary) < time.Second; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("they do not run")
		}
	}
	if a, b := ran(t, ordinary), ran(t, light); a < 2*b {
		t.Errorf("the ordinary group ran for %v and the light one for %v", a, b)
	}
}

// ran returns how long a process had a processor.
func ran(t *testing.T, pid int) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var ns int64
	if _, err := fmt.Sscan(string(data), &ns); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ns)
}
