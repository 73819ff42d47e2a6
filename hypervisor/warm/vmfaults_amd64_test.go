package warm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisortest"
	"github.com/bulkhead-project/bulkhead/shim/confine"
	"github.com/bulkhead-project/bulkhead/shim/policy"
)

// TestParentLost: if a QEMU is killed, hangs or is closed during a fork, the fork fails within its deadline and leaves
// no process.
func TestParentLost(t *testing.T) {
	library(t)
	for name, lose := range map[string]func(p *Parent, pid int, cancel func()) error{
		"killed": func(_ *Parent, pid int, _ func()) error { return unix.Kill(pid, unix.SIGKILL) },
		"hangs": func(_ *Parent, pid int, cancel func()) error {
			defer cancel()
			return unix.Kill(pid, unix.SIGSTOP)
		},
		"closed": func(p *Parent, _ int, _ func()) error {
			return errors.Join(p.control.conn.CloseWrite(), p.control.conn.CloseRead())
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, p := warmParent(t, "lost")
			pid := p.vm.Record().Process.PID
			ctx, cancel := context.WithCancel(hypervisortest.Within(t))
			defer cancel()
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			child := Child{Name: "last", Dir: hypervisortest.Dir(t), Confinement: Confinement{Groups: []*os.File{fill(t, w)}}}
			result := make(chan error, 1)
			go func() { _, _, err := p.Fork(ctx, child); result <- err }()
			for len(copies(t, "bulkhead-last")) == 0 {
				if ctx.Err() != nil {
					t.Fatal(context.Cause(ctx))
				}
			}
			if err := lose(p, pid, cancel); err != nil {
				t.Fatal(err)
			}
			if err := <-result; !errors.Is(err, ErrFork) {
				t.Errorf("fork: %v", err)
			}
			if left := copies(t, "bulkhead-last"); len(left) > 0 {
				t.Errorf("there is %v", left)
			}
		})
	}
}

// TestLimited: if the kernel refuses a process for want of processes, the fork can be repeated. A fork without enough
// memory fails, and leaves no process.
func TestLimited(t *testing.T) {
	library(t)
	_, p := warmParent(t, "some")
	pid := p.vm.Record().Process.PID
	g := enclose(t, pid, hostcgroup.Limits{PIDs: int64(len(tasks(t, pid)))})
	fork := func() (Answer, error) {
		_, a, err := p.Fork(hypervisortest.Within(t), Child{Name: "some", Dir: hypervisortest.Dir(t)})
		return a, err
	}
	if _, err := fork(); !errors.Is(err, ErrFork) || errors.Is(err, errGone) || !errors.Is(err, unix.EAGAIN) {
		t.Errorf("without room for a process: %v", err)
	}
	if err := g.Set(hostcgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	a, err := fork()
	if err != nil {
		t.Errorf("with room: %v", err)
	}
	if err := killAndReap(a.PID); err != nil {
		t.Error(err)
	}
	enclose(t, pid, hostcgroup.Limits{Memory: 64 << 10})
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) }) // before the cgroup's end
	if _, err := fork(); !errors.Is(err, ErrFork) {
		t.Errorf("without memory: %v", err)
	}
	if left := copies(t, "bulkhead-some"); len(left) > 0 {
		t.Errorf("there is %v", left)
	}
}

// copies returns the live processes with a name.
func copies(t *testing.T, name string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		args, _ := os.ReadFile(path)
		if strings.Contains(string(args), "-name\x00"+name+"\x00") {
			pids = append(pids, strings.Split(path, "/")[2])
		}
	}
	return pids
}

// fill fills a pipe, so that its writers wait.
func fill(t *testing.T, w *os.File) *os.File {
	t.Helper()
	size, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
	if err == nil {
		_, err = w.Write(make([]byte, size))
	}
	if err == nil {
		err = unix.SetNonblock(int(w.Fd()), false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestPrivileges: a fork has the same privileges on this host as a clone behind the same walls, and no file of its
// parent to write to.
func TestPrivileges(t *testing.T) {
	library(t)
	d := newForks(t)
	saved := hypervisortest.Save(t, d.Driver, hypervisortest.VMConfig(t), func(v hypervisor.VM) { hypervisortest.Ask(t, v, "set warm") })
	files := hypervisor.Files{Memory: saved.Memory, State: saved.State}
	p, err := d.parent(hypervisortest.Within(t), saved.VM, files, "fork")
	if err != nil {
		t.Fatal(err)
	}
	rules := policy.VM(saved.VM, d.Program)
	o := hypervisortest.Options(t, "clone")
	o.Start = func(cmd *exec.Cmd) error {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		_, err := confine.Start(cmd, rules)
		return err
	}
	clone := saved.CloneAs(t, d.Driver, o)
	walls, err := confine.MakeWalls(rules)
	if err != nil {
		t.Fatal(err)
	}
	defer walls.Close()
	dir := hypervisortest.Dir(t)
	r, a, err := p.Fork(hypervisortest.Within(t), Child{
		Name: "fork", Dir: dir, Confinement: Confinement{Landlock: walls.Ruleset, Filter: walls.Filter},
	})
	if err != nil {
		t.Fatal(err)
	}
	go procid.Reap(a.PID)
	v, err := d.Adopt(hypervisortest.Within(t), r, hypervisor.Files{}, hypervisor.Options{Name: "fork", Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	hypervisortest.KillAtEnd(t, v)
	if err := v.Resume(hypervisortest.Within(t)); err != nil {
		t.Fatal(err)
	}
	if got := hypervisortest.Ask(t, v, "get"); got != "warm" {
		t.Errorf("the fork answered %q", got)
	}
	was := clone.Record().Process.PID
	want := statuses(t, was, was)
	for _, tid := range tasks(t, a.PID) {
		got := statuses(t, a.PID, tid)
		// An exec by root gives a clone capabilities, which a fork has not.
		for _, key := range []string{"CapEff", "CapPrm"} {
			if got[key] != "0000000000000000" {
				t.Errorf("thread %d: %s is %s", tid, key, got[key])
			}
		}
		for _, key := range []string{"Uid", "Gid", "Groups", "CapInh", "CapAmb", "CapBnd", "NoNewPrivs", "Seccomp", "Seccomp_filters"} {
			if got[key] != want[key] {
				t.Errorf("thread %d: %s is %q, a clone's is %q", tid, key, got[key], want[key])
			}
		}
	}
	writable(t, a.PID, p.vm.Record().Process.PID)
}

// writable checks that no descriptor of the child writes to a file or socket of the parent, except to sealed memory.
func writable(t *testing.T, child, parent int) {
	t.Helper()
	theirs := identities(t, parent)
	given := identities(t, os.Getpid()) // the tests' own starter lets all processes inherit these
	for n, id := range identities(t, child) {
		path := fmt.Sprintf("/proc/%d/fd/%s", child, n)
		link, err := os.Readlink(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // closed since
		}
		if err != nil {
			t.Fatal(err)
		}
		kernel := strings.HasPrefix(link, "anon_inode:") || link == os.DevNull // share an inode
		if kernel || given[n] == id || !slices.Contains(slices.Collect(maps.Values(theirs)), id) {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			t.Errorf("descriptor %s of a fork is its parent's: %s", n, link)
			continue
		}
		seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
		if err != nil || seals&unix.F_SEAL_WRITE == 0 {
			t.Errorf("descriptor %s of a fork is its parent's: %s, seals %x, %v", n, link, seals, err)
		}
		f.Close()
	}
}

// identities returns the files behind a process's descriptors.
func identities(t *testing.T, pid int) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		var s unix.Stat_t
		if unix.Stat(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name()), &s) == nil { // else closed since
			all[e.Name()] = fmt.Sprintf("%d:%d", s.Dev, s.Ino)
		}
	}
	return all
}
