package engine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/kinds"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testproc"
)

// warmEngine opens an engine with forks. It checks that nothing is left at the end.
func warmEngine(t *testing.T, change ...func(*engine.Options)) (context.Context, *engine.Engine) {
	t.Helper()
	o := enginetest.Real(t, enginetest.Forks)
	for _, c := range change {
		c(&o)
	}
	ctx := testdeadline.Context(t, 4*time.Minute)
	e := enginetest.Open(t, o)
	t.Cleanup(func() {
		for _, p := range e.Pods() {
			if err := e.RemovePod(context.WithoutCancel(ctx), p.ID); err != nil {
				t.Error(err)
			}
		}
		if err := e.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
		enginetest.NothingLeft(t, o)
	})
	if err := e.Kinds().Warm(ctx, kinds.Request{}); err != nil {
		t.Fatal(err)
	}
	return ctx, e
}

// fork starts a pod, checks whether it is a fork or a clone, and returns its facts.
func fork(ctx context.Context, t *testing.T, e *engine.Engine, r engine.PodRequest, forked bool) *engine.Facts {
	t.Helper()
	id, err := e.StartPod(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	f, err := e.Facts(ctx, id)
	if err != nil || f.Forked != forked || !f.Clone {
		t.Errorf("%s: %+v, %v", r.Key, f, err)
	}
	return f
}

// TestForksAreNotTwins checks that two forks of one parent share no identity, and find nothing of the rehearsal.
func TestForksAreNotTwins(t *testing.T) {
	t.Parallel()
	ctx, e := warmEngine(t)
	seen := map[string]string{}
	for _, name := range []string{"a", "b"} {
		f := fork(ctx, t, e, podRequest(name), true)
		c := startContainer(ctx, t, e, f.ID, "c", "sleep", "1000")
		out, _, err := output(ctx, e, c, []string{"sh", "-c", `
			cat /etc/machine-id /proc/sys/kernel/random/boot_id /proc/sys/kernel/random/uuid
			head -c 16 /dev/urandom | md5sum
			hostname
			cat /proc/mounts; ls /sys/fs/cgroup /sys/block; ps`}, testdeadline.For(20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitN(string(out), "\n", 6)
		if len(lines) < 6 || len(lines[0]) != 32 || len(lines[1]) != 36 || lines[4] != name || strings.Contains(lines[5], "rehears") {
			t.Errorf("%s: %q", name, out)
		}
		for _, own := range lines[:min(len(lines), 5)] {
			if seen[own] != "" {
				t.Errorf("%s and %s have %q", name, seen[own], own)
			}
			seen[own] = name
		}
	}
}

// TestForkedRoots checks that containers of a fork can have roots that are directories of the host: the rehearsal has
// unmounted its own.
func TestForkedRoots(t *testing.T) {
	p := newBlockPods(t, enginetest.Forks)
	tree := busyboxTree(t, realDir(t))
	for _, name := range []string{"one", "two"} {
		pod := p.pod(name)
		if !pod.Forked {
			t.Errorf("pod %s is no fork: %+v", name, pod)
		}
		for _, c := range []string{"a", "b"} {
			id := p.must(p.on(pod.ID, c, containerv1.Share{Name: tree}))
			p.says(p.sh(id, "echo "+name+c+" >/file; cat /file; grep -c rehears /proc/self/mounts"), name+c+"\n0")
			p.same(filepath.Join(tree, "file"), name+c)
		}
	}
}

// TestTenantsAreNoSiblings checks that the address layout of one tenant's VMs differs from all other tenants'.
func TestTenantsAreNoSiblings(t *testing.T) {
	ctx, e := warmEngine(t, func(o *engine.Options) {
		o.Tenant = func(who engine.Identity) string { return who.Labels["tenant"] }
	})
	begins := map[string]string{} // the process's first address, by tenant
	for _, tenant := range []string{"", "red", "blue"} {
		if err := e.Kinds().Warm(ctx, kinds.Request{Tenant: tenant}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b"} {
			r := podRequest(name + tenant)
			if tenant != "" {
				r.Identity.Labels = map[string]string{"tenant": tenant}
			}
			maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", fork(ctx, t, e, r, true).VMPID))
			if err != nil {
				t.Fatal(err)
			}
			begin, _, _ := strings.Cut(string(maps), "-")
			for other, taken := range begins {
				if (begin == taken) != (other == tenant) {
					t.Errorf("the VM of %s starts at address %s, the VMs of tenant %q at %s", r.Identity.Name, begin, other, taken)
				}
			}
			begins[tenant] = begin
		}
	}
}

// TestNoFork checks that a pod that refuses forks is a clone, although there is a parent.
func TestNoFork(t *testing.T) {
	t.Parallel()
	ctx, e := warmEngine(t)
	r := podRequest("alone")
	r.NoFork = true
	fork(ctx, t, e, r, false)
}

// TestForkOfADeadParent checks that a pod is a clone if its parent does not answer, and that the next ones are
// forks. The engine notices a killed parent, so a pod is a clone only if it comes first.
func TestForkOfADeadParent(t *testing.T) {
	t.Parallel()
	var state string
	ctx, e := warmEngine(t, func(o *engine.Options) { state = o.Roots.State })
	kill := func(t testing.TB, pid int) {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	for name, end := range map[string]func(testing.TB, int){"killed": kill, "stopped": testproc.Stop} {
		t.Run(name, func(t *testing.T) {
			end(t, parentOf(t, state))
			id, err := e.StartPod(ctx, podRequest(name))
			if err != nil {
				t.Fatal(err)
			}
			if f, err := e.Facts(ctx, id); err != nil || f.Forked != (f.ForkNote == "") || f.Forked && name == "stopped" {
				t.Errorf("%+v, %v", f, err)
			}
			if err := e.Kinds().Warm(ctx, kinds.Request{}); err != nil {
				t.Fatal(err)
			}
			fork(ctx, t, e, podRequest(name+"-again"), true)
		})
	}
}

// TestBurst checks that concurrent first pods wait for one parent instead of each doing its work.
func TestBurst(t *testing.T) {
	t.Parallel()
	o := enginetest.Real(t, enginetest.Forks)
	e := enginetest.Open(t, o)
	ctx := testdeadline.Context(t, 4*time.Minute)
	if _, err := e.Kinds().Ensure(ctx, kinds.Request{}); err != nil {
		t.Fatal(err)
	}
	const pods = 8
	forked := make(chan bool, pods)
	var all sync.WaitGroup
	for i := range pods {
		all.Go(func() {
			id, err := e.StartPod(ctx, podRequest(string(rune('a'+i))))
			if err != nil {
				t.Error(err)
				return
			}
			f, err := e.Facts(ctx, id)
			if err == nil {
				forked <- f.Forked
				err = e.RemovePod(ctx, id)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	close(forked)
	forks := 0
	for f := range forked {
		if f {
			forks++
		}
	}
	if forks < pods-1 {
		t.Errorf("%d of %d pods are forks", forks, pods)
	}
	if err := e.Close(context.Background()); err != nil {
		t.Error(err)
	}
	enginetest.NothingLeft(t, o)
}

// parentOf returns the parent of the engine with that state: a child of this process with an open file below it.
func parentOf(t *testing.T, state string) (pid int) {
	t.Helper()
	threads, err := filepath.Glob("/proc/[0-9]*/task/*/comm")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, path := range threads {
		name, err := os.ReadFile(path)
		one, _ := strconv.Atoi(strings.Split(path, "/")[2])
		status, statusErr := os.ReadFile(fmt.Sprintf("/proc/%d/status", one))
		if err != nil || statusErr != nil || string(name) != "warm\n" || !holds(t, one, state) ||
			!strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())) {
			continue // of another test, or gone
		}
		found++
		pid = one
	}
	if found != 1 {
		t.Fatalf("%d parents", found)
	}
	return pid
}

// holds reports whether a process has an open file below dir.
func holds(t *testing.T, pid int, dir string) bool {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		path, err := os.Readlink(file)
		return err == nil && strings.HasPrefix(path, dir+"/")
	})
}
