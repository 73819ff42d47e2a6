package warm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/shim/confine"
)

// walls are like those of a VM's process, except for the program's own signals: it can open no file.
func walls(t *testing.T) confine.Walls {
	t.Helper()
	w, err := confine.MakeWalls(confine.Policy{Signals: []uint32{0, uint32(unix.SIGUSR2)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// TestConfined: each thread of a child is confined as requested.
func TestConfined(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("starts processes of other users: needs root")
	}
	host := hostcgroup.Find(fmt.Sprintf("bulkhead-warm-test-%d", os.Getpid()))
	group := hostcgroup.At(makeGroup(t, host))
	doors, err := group.Doors()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range doors {
			f.Close()
		}
	})
	joined := namespace(t)
	w := walls(t)
	p := plain.start(t)
	theirs := statuses(t, p.pid, p.pid)
	for name, alone := range map[string]bool{"a namespace of its own": true, "a namespace that it joins": false} {
		t.Run(name, func(t *testing.T) {
			once := *p
			once.t = t
			r := Request{Name: p.sibling(), Confinement: Confinement{
				Owner: &Owner{UID: 12345, GID: 23456}, FileSize: 1 << 40, Groups: doors, Alone: alone,
				Landlock: w.Ruleset, Filter: w.Filter,
			}}
			if !alone {
				r.NetNS = joined
			}
			c, _ := once.child(r)
			spaces := map[string]bool{}
			tasks := tasks(t, c.pid)
			for _, tid := range tasks {
				got := statuses(t, c.pid, tid)
				for key, want := range map[string]string{
					"Uid": "12345 12345 12345 12345", "Gid": "23456 23456 23456 23456", "Groups": "", "NoNewPrivs": "1", "Seccomp": "2",
					"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapInh": "0000000000000000", "CapAmb": "0000000000000000",
					"Seccomp_filters": increased(theirs["Seccomp_filters"]),
				} {
					if got[key] != want {
						t.Errorf("thread %d: %s is %q, want %q", tid, key, got[key], want)
					}
				}
				space, err := os.Readlink(fmt.Sprintf("/proc/%d/task/%d/ns/net", c.pid, tid))
				if err != nil {
					t.Error(err)
				}
				spaces[space] = true
				groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/cgroup", c.pid, tid))
				if n := strings.Count(string(groups), "/"+groupName+"\n"); n < len(doors) || err != nil {
					t.Errorf("thread %d is in %d of %d cgroups: %v", tid, n, len(doors), err)
				}
			}
			own, err := os.Readlink("/proc/self/ns/net")
			if err != nil || len(spaces) != 1 || spaces[own] || spaces[link(t, joined)] == alone {
				t.Errorf("the network namespaces of its threads are %v, ours is %s: %v", spaces, own, err)
			}
			limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", c.pid))
			words := strings.Join(strings.Fields(string(limits)), " ")
			for _, want := range []string{"Max file size 1099511627776 1099511627776 bytes", "Max core file size 0 0 bytes"} {
				if !strings.Contains(words, want) {
					t.Errorf("its limits are %s, %v", limits, err)
				}
			}
			if session, err := unix.Getsid(c.pid); session != c.pid {
				t.Errorf("its session is %d: %v", session, err)
			}
			// An undumpable process belongs to root.
			var s unix.Stat_t
			if err := unix.Stat(fmt.Sprintf("/proc/%d/fd", c.pid), &s); err != nil || s.Uid != 12345 {
				t.Errorf("its descriptors belong to user %d: %v", s.Uid, err)
			}
			for one := range strings.SplitSeq(strings.TrimSuffix(c.ask(t, p.ctx, "open /etc/passwd"), ";"), ";") {
				if f := strings.Fields(one); len(f) != 4 || f[2] != fmt.Sprint(int(unix.EACCES)) || f[3] != "ok" {
					t.Errorf("a worker that opens a file: %s", one)
				}
			}
		})
	}
	if got := statuses(t, p.pid, p.pid); got["Uid"] != theirs["Uid"] || got["Seccomp"] != theirs["Seccomp"] ||
		got["CapEff"] != theirs["CapEff"] {
		t.Errorf("the parent is confined: %v", got)
	}
}

// groupName is the name of the test's cgroup.
const groupName = "child"

// makeGroup creates a cgroup in each hierarchy. It is removed when the test ends.
func makeGroup(t *testing.T, host *hostcgroup.Host) []string {
	t.Helper()
	dirs := host.Dirs(groupName)
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			// Reaping a process does not wait for the end of its threads.
			for _, d := range []string{dir, filepath.Dir(dir)} {
				for err := unix.Rmdir(d); errors.Is(err, unix.EBUSY) && t.Context() != nil; err = unix.Rmdir(d) {
					runtime.Gosched()
				}
			}
		})
	}
	return dirs
}

// namespace creates a network namespace.
func namespace(t *testing.T) *os.File {
	t.Helper()
	var f *os.File
	done := make(chan error)
	var unshare func()
	unshare = func() {
		runtime.LockOSThread() // and never unlocked: the thread ends
		if unix.Gettid() == os.Getpid() {
			other := make(chan struct{}) // a process is judged by its first thread
			go func() { defer close(other); unshare() }()
			<-other
			runtime.UnlockOSThread()
			return
		}
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			f, err = os.Open("/proc/thread-self/ns/net")
		}
		done <- err
	}
	go unshare()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// link returns the name of a namespace's file.
func link(t *testing.T, f *os.File) string {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("net:[%d]", info.Sys().(*syscall.Stat_t).Ino)
}

// tasks returns a process's threads.
func tasks(t *testing.T, pid int) (tids []int) {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil || len(entries) < 2 {
		t.Fatalf("process %d has the threads %v, %v", pid, entries, err)
	}
	for _, e := range entries {
		var tid int
		if _, err := fmt.Sscan(e.Name(), &tid); err != nil {
			t.Fatal(err)
		}
		tids = append(tids, tid)
	}
	slices.Sort(tids)
	return tids
}

// statuses returns the kernel's status of a thread.
func statuses(t *testing.T, pid, tid int) map[string]string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", pid, tid))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		all[key] = strings.Join(strings.Fields(value), " ")
	}
	return all
}

// increased returns n+1.
func increased(n string) string {
	var i int
	fmt.Sscan(n, &i)
	return fmt.Sprint(i + 1)
}
