package hostcgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// fakeView is a process's view of the directory tree root: mounts are lines of
// "type root mount-point options".
func fakeView(t *testing.T, own string, mounts ...string) view {
	t.Helper()
	dir := t.TempDir()
	v := view{filepath.Join(dir, "own"), filepath.Join(dir, "mounts")}
	var text strings.Builder
	for _, m := range mounts {
		f := strings.Fields(m)
		text.WriteString("30 24 0:26 " + f[1] + " " + f[2] + " rw,relatime shared:9 - " + f[0] + " cgroup rw," + f[3] + "\n")
	}
	// The kernel's own options come last.
	out := strings.ReplaceAll(text.String(), " cgroup rw,", " cgroup ")
	if err := errors.Join(os.WriteFile(v.own, []byte(own), 0o600), os.WriteFile(v.mounts, []byte(out), 0o600)); err != nil {
		t.Fatal(err)
	}
	return v
}

// fakeGroup creates a directory with files of a group.
func fakeGroup(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHierarchies(t *testing.T) {
	for _, tc := range []struct {
		name   string
		own    string
		mounts []string
		want   map[string]hierarchy
	}{
		{
			name:   "unified",
			own:    "0::/user.slice/a.scope\n",
			mounts: []string{"cgroup2 / /sys/fs/cgroup rw"},
			want:   map[string]hierarchy{"": {"/sys/fs/cgroup", "/user.slice/a.scope"}},
		},
		{
			name: "both",
			own:  "4:memory:/m\n2:cpu,cpuacct:/\n1:name=systemd:/s\n0::/u\n",
			mounts: []string{
				"cgroup / /c/memory memory",
				"cgroup / /c/cpu cpu,cpuacct",
				"cgroup / /c/systemd xattr,name=systemd",
				"cgroup2 / /c/unified rw",
			},
			want: map[string]hierarchy{
				"memory":       {"/c/memory", "/m"},
				"cpu":          {"/c/cpu", "/"},
				"cpuacct":      {"/c/cpu", "/"},
				"name=systemd": {"/c/systemd", "/s"},
				"":             {"/c/unified", "/u"},
			},
		},
		{
			name:   "a container's part of it",
			own:    "4:memory:/docker/x/y\n",
			mounts: []string{"cgroup /docker/x /c/my\\040memory memory"},
			want:   map[string]hierarchy{"memory": {"/c/my memory", "/y"}},
		},
		{
			name:   "another part",
			own:    "4:memory:/docker/x\n",
			mounts: []string{"cgroup /docker/z /c/memory memory"},
			want:   map[string]hierarchy{},
		},
		{name: "nothing", want: map[string]hierarchy{}},
		{name: "garbage", own: "4\n::\n:::::\n", mounts: []string{"ext4 / / rw"}, want: map[string]hierarchy{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := fakeView(t, tc.own, tc.mounts...).hierarchies()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(hierarchy{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSupport: support for an ordinary user, with directories in place of the kernel's.
func TestSupport(t *testing.T) {
	none := func(t *testing.T, v view, reason string) {
		t.Helper()
		h := find(v, "tag")
		if s := h.Support(); s.Version != 0 || !strings.Contains(s.Missing, reason) {
			t.Errorf("support %+v, want none for %q", s, reason)
		}
		g, err := h.Create("x", Limits{Memory: 1})
		if g != nil || err != nil {
			t.Errorf("a group where there are none: %v %v", g, err)
		}
		if err := errors.Join(g.Set(Limits{}), g.Add(1), g.KillAndDelete(t.Context()), h.Reap(t.Context(), nil)); err != nil {
			t.Error(err)
		}
	}
	t.Run("no cgroups", func(t *testing.T) { none(t, fakeView(t, "0::/\n"), "no cgroups are mounted") })
	t.Run("no /proc", func(t *testing.T) { none(t, view{"/no/such", "/no/such"}, "no such file") })
	t.Run("no controllers", func(t *testing.T) {
		top := t.TempDir()
		fakeGroup(t, top, map[string]string{"cgroup.controllers": "hugetlb io\n", "cgroup.subtree_control": "", "cgroup.procs": ""})
		none(t, fakeView(t, "0::/\n", "cgroup2 / "+top+" rw"), "cgroup.controllers") // the fake directory's child has no files
	})
	t.Run("not delegated", func(t *testing.T) {
		top := t.TempDir()
		files := map[string]string{"cgroup.controllers": "cpu memory pids\n", "cgroup.subtree_control": "memory\n", "cgroup.procs": ""}
		fakeGroup(t, filepath.Join(top, "user.slice"), files)
		fakeGroup(t, top, files)
		// Root may write everywhere, but not in an immutable place.
		for _, dir := range []string{filepath.Join(top, "user.slice"), top} {
			if err := os.Remove(filepath.Join(dir, "cgroup.procs")); err != nil {
				t.Fatal(err)
			}
		}
		none(t, fakeView(t, "0::/user.slice/session.scope\n", "cgroup2 / "+top+" rw"), "not delegated to this user")
	})
	t.Run("version 1, one controller", func(t *testing.T) {
		top := t.TempDir()
		fakeGroup(t, filepath.Join(top, "own"), nil)
		h := find(fakeView(t, "4:memory:/own\n0::/\n", "cgroup / "+top+" memory"), "tag")
		want := Support{1, []string{"memory"}, "no controller of cpu, pids"}
		if diff := cmp.Diff(want, h.Support()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{top + "/own/tag/x"}, h.Dirs("x")); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("version 1, counted by itself", func(t *testing.T) {
		dirs := map[string]string{}
		var mounts []string
		for _, c := range []string{"memory", "cpu", "cpuacct", "pids"} {
			dirs[c] = t.TempDir()
			mounts = append(mounts, "cgroup / "+dirs[c]+" "+c)
		}
		h := find(fakeView(t, "4:memory:/\n3:cpu:/\n2:cpuacct:/\n1:pids:/\n", mounts...), "tag")
		if diff := cmp.Diff(Support{1, controllers, ""}, h.Support()); diff != "" {
			t.Error(diff)
		}
		want := []string{dirs["memory"] + "/tag/x", dirs["cpu"] + "/tag/x", dirs["cpuacct"] + "/tag/x", dirs["pids"] + "/tag/x"}
		if diff := cmp.Diff(want, h.Dirs("x")); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("version 1, counted together", func(t *testing.T) {
		top, cpu := t.TempDir(), t.TempDir()
		h := find(fakeView(t, "4:memory:/\n3:cpu,cpuacct:/\n", "cgroup / "+top+" memory", "cgroup / "+cpu+" cpu,cpuacct"), "tag")
		if diff := cmp.Diff([]string{top + "/tag/x", cpu + "/tag/x"}, h.Dirs("x")); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("the nearest has a part of the controllers", func(t *testing.T) {
		top := t.TempDir()
		near, part := filepath.Join(top, "user.slice"), "memory pids\n"
		all := map[string]string{"cgroup.controllers": "cpu memory pids\n", "cgroup.subtree_control": "cpu memory pids\n", "cgroup.procs": ""}
		some := map[string]string{"cgroup.controllers": part, "cgroup.subtree_control": part, "cgroup.procs": ""}
		for dir, files := range map[string]map[string]string{top: all, top + "/tag": all, near: some, near + "/tag": some} {
			fakeGroup(t, dir, files)
		}
		v := fakeView(t, "0::/user.slice/x.scope\n", "cgroup2 / "+top+" rw")
		if diff := cmp.Diff(Support{2, []string{"cpu", "memory", "pids"}, ""}, find(v, "tag").Support()); diff != "" {
			t.Error(diff)
		}
		// If the others have none, the nearest is used.
		if err := os.Remove(filepath.Join(top, "cgroup.procs")); err != nil {
			t.Fatal(err)
		}
		h := find(v, "tag")
		if diff := cmp.Diff(Support{2, []string{"memory", "pids"}, "no controller of cpu"}, h.Support()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{near + "/tag/x"}, h.Dirs("x")); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("delegated", func(t *testing.T) {
		top := t.TempDir()
		own := filepath.Join(top, "app.slice")
		files := map[string]string{"cgroup.controllers": "cpu memory pids\n", "cgroup.subtree_control": "cpu memory pids\n", "cgroup.procs": ""}
		fakeGroup(t, own, files)
		fakeGroup(t, filepath.Join(own, "tag"), files)
		h := find(fakeView(t, "0::/app.slice/x.scope\n", "cgroup2 / "+top+" rw"), "tag")
		if diff := cmp.Diff(Support{2, []string{"cpu", "memory", "pids"}, ""}, h.Support()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{own + "/tag/x"}, h.Dirs("x")); diff != "" {
			t.Error(diff)
		}
	})
}

// TestMemory: a group's usage is reported for either version, and none for a nil group.
func TestMemory(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		files map[string]string
		want  int64
		ok    bool
	}{
		"cgroup2":       {files: map[string]string{"memory.current": "4096\n"}, want: 4096, ok: true},
		"cgroup1":       {files: map[string]string{"memory.usage_in_bytes": "8192\n"}, want: 8192, ok: true},
		"no controller": {files: map[string]string{"cgroup.procs": ""}},
		"no number":     {files: map[string]string{"memory.current": "max\n"}},
	} {
		other, dir := t.TempDir(), t.TempDir()
		fakeGroup(t, dir, tc.files)
		if got, ok := At([]string{other, dir}).Memory(); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %d, %v", name, got, ok)
		}
	}
	if _, ok := At(nil).Memory(); ok {
		t.Error("no group takes memory")
	}
}

// TestHeldMemory: the page cache does not count as held, for either version.
func TestHeldMemory(t *testing.T) {
	t.Parallel()
	const old = "cache 9\ninactive_file 1\nactive_file 1\ntotal_inactive_file 1024\ntotal_active_file 512\n"
	for name, tc := range map[string]struct {
		files map[string]string
		want  int64
		ok    bool
	}{
		"cgroup2": {
			files: map[string]string{"memory.current": "4096\n", "memory.stat": "anon 7\ninactive_file 1024\nactive_file 512\n"},
			want:  2560, ok: true,
		},
		"cgroup1":            {files: map[string]string{"memory.usage_in_bytes": "8192\n", "memory.stat": old}, want: 6656, ok: true},
		"more than there is": {files: map[string]string{"memory.current": "10\n", "memory.stat": "inactive_file 20\n"}, ok: true},
		"no parts":           {files: map[string]string{"memory.current": "4096\n"}, want: 4096, ok: true},
		"no controller":      {files: map[string]string{"memory.stat": "inactive_file 20\n"}},
	} {
		other, dir := t.TempDir(), t.TempDir()
		fakeGroup(t, dir, tc.files)
		if got, ok := At([]string{other, dir}).HeldMemory(); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %d, %v", name, got, ok)
		}
	}
	if _, ok := At(nil).HeldMemory(); ok {
		t.Error("no group holds memory")
	}
}

func TestNames(t *testing.T) {
	top := t.TempDir()
	h := find(fakeView(t, "4:memory:/\n", "cgroup / "+top+" memory"), "tag")
	for _, name := range []string{"", ".", "..", "a/b", "/a", ".hidden"} {
		if _, err := h.Create(name, Limits{}); err == nil {
			t.Errorf("a group of the name %q", name)
		}
	}
}

// The forms in which limits are written.
func TestLimits(t *testing.T) {
	v1 := map[string]string{
		"memory.limit_in_bytes":       "",
		"memory.memsw.limit_in_bytes": "",
		"cpu.cfs_quota_us":            "",
		"cpu.cfs_period_us":           "",
		"pids.max":                    "",
	}
	v2 := map[string]string{"cgroup.events": "", "memory.max": "", "memory.swap.max": "", "cpu.max": "", "pids.max": ""}
	for _, tc := range []struct {
		name   string
		files  map[string]string
		limits Limits
		want   map[string]string
	}{
		{
			name:   "version 1",
			files:  v1,
			limits: Limits{Memory: 1 << 20, Quota: 25000, Period: 50000, PIDs: 9},
			want: map[string]string{
				"memory.limit_in_bytes":       "1048576",
				"memory.memsw.limit_in_bytes": "1048576",
				"cpu.cfs_quota_us":            "25000",
				"cpu.cfs_period_us":           "50000",
				"pids.max":                    "9",
			},
		},
		{
			name:  "version 1, none",
			files: v1,
			want: map[string]string{
				"memory.limit_in_bytes":       "-1",
				"memory.memsw.limit_in_bytes": "-1",
				"cpu.cfs_quota_us":            "-1",
				"cpu.cfs_period_us":           "100000",
				"pids.max":                    "max",
			},
		},
		{
			name:   "version 2",
			files:  v2,
			limits: Limits{Memory: 1 << 20, Quota: 25000, PIDs: 9},
			want: map[string]string{
				"memory.max":      "1048576",
				"memory.swap.max": "0",
				"cpu.max":         "25000 100000",
				"pids.max":        "9",
			},
		},
		{
			name:  "version 2, none",
			files: v2,
			want: map[string]string{
				"memory.max":      "max",
				"memory.swap.max": "max",
				"cpu.max":         "max 100000",
				"pids.max":        "max",
			},
		},
		{
			name:   "version 1, weight",
			files:  map[string]string{"cpu.shares": ""},
			limits: Limits{Weight: 25},
			want:   map[string]string{"cpu.shares": "256"},
		},
		{
			name:  "version 1, ordinary weight",
			files: map[string]string{"cpu.shares": ""},
			want:  map[string]string{"cpu.shares": "1024"},
		},
		{
			name:   "version 2, weight",
			files:  map[string]string{"cgroup.events": "", "cpu.weight": ""},
			limits: Limits{Weight: 25},
			want:   map[string]string{"cpu.weight": "25"},
		},
		{
			name:  "version 2, ordinary weight",
			files: map[string]string{"cgroup.events": "", "cpu.weight": ""},
			want:  map[string]string{"cpu.weight": "100"},
		},
		{
			name:   "a controller that is not there",
			files:  map[string]string{"pids.max": ""},
			limits: Limits{Memory: 1, Quota: 1},
			want:   map[string]string{"pids.max": "max"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			fakeGroup(t, dir, tc.files)
			if err := At([]string{dir}).Set(tc.limits); err != nil {
				t.Fatal(err)
			}
			for name, want := range tc.want {
				got, err := os.ReadFile(filepath.Join(dir, name))
				// Files of a directory keep what is longer than the new text.
				if err != nil || !strings.HasPrefix(string(got), want) {
					t.Errorf("%s: %q, want %q (%v)", name, got, want, err)
				}
			}
			if err := At([]string{filepath.Join(dir, "none")}).Set(tc.limits); err != nil {
				t.Errorf("a group that is gone: %v", err)
			}
		})
	}
}

func TestWithin(t *testing.T) {
	for _, tc := range []struct {
		root, path, want string
		ok               bool
	}{
		{"/", "/", "/", true}, {"/", "/a/b", "/a/b", true}, {"/a", "/a", "/", true}, {"/a", "/a/b", "/b", true},
		{"/a", "/ab", "", false}, {"/a/b", "/a", "", false}, {"/a", "/..a", "", false}, {"/", "/..a", "/..a", true},
	} {
		if got, ok := within(tc.root, tc.path); got != tc.want || ok != tc.ok {
			t.Errorf("within(%q, %q): %q %v", tc.root, tc.path, got, ok)
		}
	}
}

func TestGone(t *testing.T) {
	for _, err := range []error{fs.ErrNotExist, unix.ENOENT, unix.ENODEV} {
		if !gone(err) {
			t.Errorf("%v is not taken for the end of a group", err)
		}
	}
}

// TestCPUIsWrittenOnce: unchanged values of the older controllers are not written again.
func TestCPUIsWrittenOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fakeGroup(t, dir, map[string]string{"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"})
	for _, tc := range []struct {
		limits        Limits
		quota, period string
	}{
		{Limits{}, "-1\n", "100000\n"}, // the kernel's own lines
		{Limits{Quota: 50000, Period: 100000}, "50000", "100000\n"},
		{Limits{Quota: 60000, Period: 200000}, "60000", "200000\n"},
	} {
		if err := At([]string{dir}).Set(tc.limits); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"cpu.cfs_quota_us": tc.quota, "cpu.cfs_period_us": tc.period} {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
				t.Errorf("%+v: %s is %q, not %q: %v", tc.limits, name, got, want, err)
			}
		}
	}
}
