package cri

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// groupHost skips the test if the host gives this user no cgroups.
func groupHost(t *testing.T, s *service) {
	t.Helper()
	if have := s.groups.Support(); !have.Has("memory") {
		t.Skipf("no cgroup with memory for this user: %s", have.Missing)
	}
}

// groupValue reads a limit of a group by its names in both cgroup versions.
func groupValue(t *testing.T, dirs []string, names ...string) string {
	t.Helper()
	for _, dir := range dirs {
		for _, name := range names {
			if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				return strings.TrimSpace(string(data))
			}
		}
	}
	t.Errorf("no %q in %q", names, dirs)
	return ""
}

// TestCgroup puts real VMs into the host's cgroups: one that was started for its pod and one that was forked.
func TestCgroup(t *testing.T) {
	s, _ := realService(t, enginetest.Forks)
	groupHost(t, s)
	ctx := testdeadline.Context(t, 4*time.Minute)
	for _, name := range []string{"own", "forked"} {
		t.Run(name, func(t *testing.T) {
			if name == "forked" {
				s.warm(ctx, t, 400)
			}
			config := podConfig(name)
			config.Linux.Resources = &runtimeapi.LinuxContainerResources{CpuQuota: 50_000, CpuPeriod: 100_000, MemoryLimitInBytes: 400 << 20}
			id, err := s.RunPodSandbox(ctx, config, "")
			if err != nil {
				t.Fatal(err)
			}
			facts, err := s.PodFacts(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			if facts.Forked != (name == "forked") {
				t.Errorf("forked: %v %s", facts.Forked, facts.ForkNote)
			}
			inside(t, facts)
			limit := facts.MemoryMiB<<20 + 192<<20
			memory := groupValue(t, facts.Cgroup.Dirs, "memory.max", "memory.limit_in_bytes")
			if memory != strconv.FormatInt(limit, 10) || facts.Cgroup.Memory != limit {
				t.Errorf("memory %s and %d, want %d", memory, facts.Cgroup.Memory, limit)
			}
			if s.groups.Support().Has("cpu") {
				got := groupValue(t, facts.Cgroup.Dirs, "cpu.max", "cpu.cfs_quota_us")
				if got != "75000" && got != "75000 100000" || facts.Cgroup.CPUs != 0.75 {
					t.Errorf("CPU %s and %v, want 75000 of 100000", got, facts.Cgroup.CPUs)
				}
			}
			ctr := containerConfig("main", "sleep", "1000")
			ctr.Linux.Resources = &runtimeapi.LinuxContainerResources{CpuQuota: 50_000, CpuPeriod: 100_000}
			c := startContainer(ctx, t, s, id, ctr, config)
			t.Logf("in use: %s bytes", groupValue(t, facts.Cgroup.Dirs, "memory.current", "memory.usage_in_bytes"))
			if name == "own" && s.groups.Support().Has("cpu") {
				less := &runtimeapi.LinuxContainerResources{CpuQuota: 70_000, CpuPeriod: 100_000}
				if err := s.UpdateContainerResources(ctx, c, &runtimeapi.ContainerResources{Linux: less}); err != nil {
					t.Fatal(err)
				}
				if got := groupValue(t, facts.Cgroup.Dirs, "cpu.max", "cpu.cfs_quota_us"); !strings.HasPrefix(got, "95000") {
					t.Errorf("CPU after the update %s, want 95000", got)
				}
				// Another shim joins the group too.
				kill9(t, facts.ShimPID)
				inside(t, s.otherShim(ctx, t, id, facts.ShimPID))
			}
			if err := s.RemovePodSandbox(ctx, id); err != nil {
				t.Error(err)
			}
			for _, dir := range facts.Cgroup.Dirs {
				if _, err := os.Stat(dir); !os.IsNotExist(err) {
					t.Errorf("left behind: %s", dir)
				}
			}
		})
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	noGroups(t, s)
}

// otherShim waits for the next shim to take over.
func (s *service) otherShim(ctx context.Context, t *testing.T, id string, was int) *engine.Facts {
	t.Helper()
	for ctx.Err() == nil {
		if now, err := s.PodFacts(ctx, id); err == nil && now.ShimPID != 0 && now.ShimPID != was {
			return now
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("no other shim took over")
	return nil
}

// inside checks that exactly the pod's processes are in its group.
func inside(t *testing.T, f *engine.Facts) {
	t.Helper()
	want := []int{f.ShimPID, f.VMPID}
	slices.Sort(want)
	for _, dir := range f.Cgroup.Dirs {
		pids, err := hostcgroup.At([]string{dir}).PIDs()
		slices.Sort(pids)
		if err != nil || !slices.Equal(pids, want) {
			t.Errorf("%s has %v, want shim and VM %v: %v", dir, pids, want, err)
		}
	}
	if len(f.Cgroup.Dirs) == 0 {
		t.Errorf("no group: %s", f.Cgroup.Note)
	}
}

func noGroups(t *testing.T, s *service) {
	t.Helper()
	names, err := s.groups.Names()
	if err != nil || len(names) > 0 {
		t.Errorf("groups left behind: %v %v", names, err)
	}
	for _, dir := range s.groups.Dirs("") {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("left behind: %s", dir)
		}
	}
}

// TestReapCgroupOfALostPod kills the engine and the shim. The next engine finds the group of a pod with removed
// directories.
func TestReapCgroupOfALostPod(t *testing.T) {
	s, o := realService(t, enginetest.Clones)
	groupHost(t, s)
	ctx := testdeadline.Context(t, 2*time.Minute)
	id, err := s.RunPodSandbox(ctx, podConfig("orphan"), "")
	if err != nil {
		t.Fatal(err)
	}
	facts, err := s.PodFacts(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	vm, err := procid.Of(facts.VMPID)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	kill9(t, facts.ShimPID)
	// Its records are removed while the VM stays.
	if err := errors.Join(os.RemoveAll(s.store.Dir(id)), os.RemoveAll(s.store.StateDir(id))); err != nil {
		t.Fatal(err)
	}
	s = serveInGroups(t, o)
	if vm.Alive() {
		t.Error("the VM still runs")
	}
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	noGroups(t, s)
	enginetest.NothingLeft(t, s.o)
}

// TestGroupLimitsTheVM lets a guest use more than its group has. The VM dies, not the host, and the pod's end
// contains the reason.
func TestGroupLimitsTheVM(t *testing.T) {
	s, _ := realService(t, enginetest.Clones)
	groupHost(t, s)
	ctx := testdeadline.Context(t, 2*time.Minute)
	events := subscribe(t, s)
	config := podConfig("greedy")
	id, err := s.RunPodSandbox(ctx, config, "")
	if err != nil {
		t.Fatal(err)
	}
	main := containerConfig("main", "sh", "-c", `
		while [ ! -e /go ]; do sleep 1; done
		dd if=/dev/zero of=/dev/shm/x bs=1M count=60
		sleep 1000`)
	c := startContainer(ctx, t, s, id, main, config)
	facts, err := s.PodFacts(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	// Instead of a guest with too much memory, shrink the group.
	const less = 120 << 20 // an idle VM takes 100 MiB, and /dev/shm may hold 64
	if err := hostcgroup.At(facts.Cgroup.Dirs).Set(hostcgroup.Limits{Memory: less}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.ExecSync(ctx, c, []string{"touch", "/go"}, testdeadline.For(20*time.Second)); err != nil {
		t.Log(err)
	}
	wait(t, events, id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	st, err := s.ContainerStatus(ctx, c, false)
	if err != nil || st.Status.ExitCode != 137 {
		t.Errorf("container: %v %v", st, err)
	}
	facts, err = s.PodFacts(ctx, id)
	if err != nil || !strings.Contains(facts.Exit+st.GetStatus().GetReason()+st.GetStatus().GetMessage(), "memory") {
		t.Errorf("the pod's end: %q, %v %v", facts.Exit, st, err)
	}
	t.Logf("exit %q, reason %q: %s", facts.Exit, st.GetStatus().GetReason(), st.GetStatus().GetMessage())
	if err := s.RemovePodSandbox(ctx, id); err != nil {
		t.Error(err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	noGroups(t, s)
}
