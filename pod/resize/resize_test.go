package resize

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
)

func TestCheck(t *testing.T) {
	both := func(limits, requests string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{
			Limits: testpod.Resources(strings.Fields(limits)...), Requests: testpod.Resources(strings.Fields(requests)...),
		}
	}
	for _, test := range []struct {
		name      string
		old, next corev1.ResourceRequirements
		err       string // empty for none
	}{
		{name: "another limit", old: both("cpu=1 memory=1Gi", "cpu=1"), next: both("cpu=2 memory=512Mi", "cpu=1")},
		{name: "a new limit", old: both("", "cpu=1"), next: both("cpu=1", "cpu=1")},
		{name: "a request as large as the limit", old: both("cpu=1", ""), next: both("cpu=1", "cpu=1")},
		{name: "zero", old: both("cpu=1", ""), next: both("cpu=0", "")},
		{name: "negative", old: both("cpu=1", ""), next: both("cpu=-1", ""), err: "the limit of cpu is negative"},
		{name: "negative request", old: both("", "cpu=1"), next: both("", "cpu=-1"), err: "the request of cpu is negative"},
		{name: "no limit", old: both("cpu=1", ""), next: both("", ""), err: "the limit of cpu cannot be removed"},
		{name: "no request", old: both("", "memory=1"), next: both("", ""), err: "the request of memory cannot be removed"},
		{name: "more than the limit", old: both("cpu=1", "cpu=1"), next: both("cpu=1", "cpu=1001m"), err: "is more than the limit 1"},
		{name: "another resource", old: both("hugepages-2Mi=2Mi", ""), next: both("hugepages-2Mi=4Mi", ""), err: "not hugepages-2Mi"},
		{name: "a new resource", next: both("hugepages-2Mi=4Mi", ""), err: "not hugepages-2Mi"},
		{name: "the same of another resource", old: both("hugepages-2Mi=2Mi", ""), next: both("hugepages-2Mi=2Mi", "")},
	} {
		err := Check(test.old, test.next)
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v, want %q", test.name, err, test.err)
		}
	}
}

func TestContainer(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	spec := &testpod.New("Always", "main").Spec
	spec.InitContainers = []corev1.Container{{Name: "init"}, {Name: "side", RestartPolicy: &always}}
	for name, want := range map[string]*corev1.Container{
		"main": &spec.Containers[0], "side": &spec.InitContainers[1], "init": nil, "other": nil,
	} {
		if got := Container(spec, name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestCompare(t *testing.T) {
	type l = runtimeapi.LinuxContainerResources
	for _, test := range []struct {
		name       string
		have, want *l
		found      bool
		restarts   string // the resources with a change that requires a restart, of cpu and memory
		shrinks    bool
	}{
		{name: "nothing", have: &l{CpuShares: 2, MemoryLimitInBytes: 5}, want: &l{CpuShares: 2, MemoryLimitInBytes: 5}},
		{name: "no quota, said otherwise", have: &l{CpuQuota: -1}, want: &l{}},
		{name: "quota", have: &l{CpuQuota: 5}, want: &l{CpuQuota: 6}, found: true, restarts: "cpu"},
		{name: "shares", have: &l{CpuShares: 5}, want: &l{CpuShares: 6}, found: true, restarts: "cpu"},
		{name: "more memory", have: &l{MemoryLimitInBytes: 5}, want: &l{MemoryLimitInBytes: 6}, found: true, restarts: "memory"},
		{name: "less memory", have: &l{MemoryLimitInBytes: 6}, want: &l{MemoryLimitInBytes: 5}, found: true, restarts: "memory", shrinks: true},
		{name: "a first limit", have: &l{}, want: &l{MemoryLimitInBytes: 5}, found: true, restarts: "memory", shrinks: true},
	} {
		container := &corev1.Container{}
		one, found := Compare(container, "id", test.have, test.want)
		if found != test.found || one.shrinks != test.shrinks || one.ID != "id" || one.Want != test.want {
			t.Errorf("%s: %+v, %t", test.name, one, found)
		}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			container.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: name, RestartPolicy: corev1.NotRequired}}
			if one.Restarts() {
				t.Errorf("%s: restarts without being asked to, for %s", test.name, name)
			}
			container.ResizePolicy[0].RestartPolicy = corev1.RestartContainer
			if one.Restarts() != (test.restarts == string(name)) {
				t.Errorf("%s: restarts %t for %s", test.name, one.Restarts(), name)
			}
		}
	}
}

// calls is a runtime that records its calls, and fails as configured.
type calls struct {
	internalapi.RuntimeService
	list []string
	fail string
	used uint64
}

func (c *calls) note(format string, args ...any) error {
	c.list = append(c.list, fmt.Sprintf(format, args...))
	if c.fail != "" && strings.HasPrefix(c.list[len(c.list)-1], c.fail) {
		return errors.New("refused")
	}
	return nil
}

func (c *calls) UpdatePodSandboxResources(
	_ context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest,
) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return nil, c.note("sandbox %s %d", r.PodSandboxId, r.Resources.MemoryLimitInBytes)
}

func (c *calls) UpdateContainerResources(_ context.Context, id string, r *runtimeapi.ContainerResources) error {
	return c.note("container %s %d %d", id, r.Linux.MemoryLimitInBytes, r.Linux.CpuQuota)
}

func (c *calls) ContainerStats(_ context.Context, id string) (*runtimeapi.ContainerStats, error) {
	working := &runtimeapi.UInt64Value{Value: c.used}
	return &runtimeapi.ContainerStats{Memory: &runtimeapi.MemoryUsage{WorkingSetBytes: working}}, c.note("stats %s", id)
}

func TestCarryOut(t *testing.T) {
	type l = runtimeapi.LinuxContainerResources
	for _, test := range []struct {
		name    string
		grows   bool
		shrinks bool
		quota   int64
		used    uint64
		fail    string
		want    string
		err     string
	}{
		{name: "grows first", grows: true, quota: 7, want: "sandbox s 9, container c 5 7"},
		{name: "shrinks last", shrinks: true, quota: 7, used: 5, want: "stats c, container c 5 7, sandbox s 9"},
		{name: "no quota", grows: true, want: "sandbox s 9, container c 5 -1"},
		{name: "uses more", shrinks: true, used: 6, want: "stats c", err: "its memory limit (5) below current usage (6)"},
		{name: "the VM cannot grow", grows: true, fail: "sandbox", want: "sandbox s 9", err: "refused"},
		{name: "the VM cannot shrink", fail: "sandbox", want: "container c 5 -1, sandbox s 9", err: "refused"},
		{name: "the container refuses", fail: "container", want: "container c 5 -1", err: "container name: refused"},
		{name: "its usage is unknown", shrinks: true, fail: "stats", want: "stats c", err: "container name: read its usage: refused"},
	} {
		runtime := &calls{fail: test.fail, used: test.used}
		plan := Plan{Sandbox: "s", Size: &l{MemoryLimitInBytes: 9}, Grows: test.grows, Changes: []Change{{
			Container: &corev1.Container{Name: "name"}, ID: "c", shrinks: test.shrinks,
			Want: &l{MemoryLimitInBytes: 5, CpuQuota: test.quota},
		}}}
		err := plan.CarryOut(t.Context(), runtime)
		if got := strings.Join(runtime.list, ", "); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: error %v, want %q", test.name, err, test.err)
		}
	}
}
