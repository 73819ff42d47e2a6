package hostoom

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestHappened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"v1":     "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
		"v2":     "low 0\nhigh 0\nmax 7\noom 4\noom_kill 3\noom_group_kill 9\n",
		"vmstat": "nr_free_pages 1\noom_kill 3\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		n, ok := read(path)
		if n != 3 || !ok {
			t.Errorf("%s: %d, %v", name, n, ok)
		}
		if (Count{File: path, Before: 3}).Happened() || !(Count{File: path, Before: 2}).Happened() {
			t.Errorf("%s: Happened is wrong", name)
		}
	}
	if (Count{}).Happened() || (Count{File: dir + "/gone"}).Happened() {
		t.Error("a count that cannot be read says that it happened")
	}
	if c := Read(os.Getpid()); c.File == "" {
		t.Error("there is nothing to count by on this host")
	}
}

// TestFiles: the kernel counts for a process in its memory cgroup, of either version.
func TestFiles(t *testing.T) {
	t.Parallel()
	const v1 = "/sys/fs/cgroup/memory/pods/p/memory.oom_control"
	v2 := []string{"/sys/fs/cgroup/pods/p/memory.events", "/sys/fs/cgroup/unified/pods/p/memory.events"}
	for _, tc := range []struct {
		name, cgroups string
		want          []string
	}{
		{name: "no cgroup"},
		{name: "version 2", cgroups: "0::/pods/p\n", want: v2},
		{name: "version 1", cgroups: "5:memory:/pods/p\n", want: []string{v1}},
		{name: "with other controllers", cgroups: "5:cpu,memory,pids:/pods/p\n", want: []string{v1}},
		{name: "other controllers", cgroups: "5:cpu,memory2:/pods/p\n4:name=memory:/pods/p\n"},
		{name: "a colon in the name", cgroups: "5:memory:/a:b\n", want: []string{"/sys/fs/cgroup/memory/a:b/memory.oom_control"}},
		{name: "the root", cgroups: "5:memory:/\n0::/\n"},
		{name: "both versions", cgroups: "5:memory:/pods/p\n1:name=systemd:/x\n0::/pods/p\n", want: append([]string{v1}, v2...)},
	} {
		if got := files(tc.cgroups); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestTakeOfTheHost: without a count for the process, the host's is used.
func TestTakeOfTheHost(t *testing.T) {
	t.Parallel()
	const noProcess = -1
	if c := Read(noProcess); c.File != "/proc/vmstat" {
		t.Errorf("counted by %q", c.File)
	}
}
