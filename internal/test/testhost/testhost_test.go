package testhost_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/test/testhost"
)

func TestMain(m *testing.M) { os.Exit(testhost.Run(m)) }

// TestHost: the host shows its own processes, mounts, network, name and cgroups.
func TestHost(t *testing.T) {
	if !testhost.Inside() {
		t.Skip("only root can create a host")
	}
	if name, err := os.Hostname(); err != nil || name != testhost.Name {
		t.Errorf("Hostname(): %q, %v", name, err)
	}
	if parent := os.Getppid(); parent != 1 {
		t.Errorf("the tests' parent is process %d, want 1", parent)
	}
	var pids []int
	for _, name := range names(t, "/proc") {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	if want := []int{1, os.Getpid()}; !slices.Equal(pids, want) {
		t.Errorf("processes %v, want %v", pids, want)
	}
	if got := names(t, "/sys/class/net"); !slices.Equal(got, []string{"lo"}) {
		t.Errorf("interfaces %q, want the loopback alone", got)
	}
	for _, dir := range []string{"/var/lib/containers", "/var/lib/docker", "/dev/shm"} {
		if got := names(t, dir); len(got) > 0 {
			t.Errorf("%s has %q", dir, got)
		}
	}
	if err := os.WriteFile("/etc/bulkhead-test", nil, 0o600); err != nil {
		t.Error(err)
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(groups)) {
		if !strings.HasSuffix(strings.TrimSpace(line), ":/tests") {
			t.Errorf("the tests' cgroup: %s", line)
		}
	}
}

// names returns the names of a directory's entries.
func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}
