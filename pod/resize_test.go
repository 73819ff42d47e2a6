package pod

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
	"github.com/bulkhead-project/bulkhead/pod/config"
)

func (f *fakeCRI) UpdatePodSandboxResources(_ context.Context,
	r *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	f.wait("Resize")
	err := f.call("Resize", fmt.Sprintf("pod %d/%dMi", r.Resources.CpuQuota, r.Resources.MemoryLimitInBytes>>20))
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, err
}

func (f *fakeCRI) UpdateContainerResources(_ context.Context, id string, r *runtimeapi.ContainerResources) error {
	f.mu.Lock()
	c := f.containers[id]
	f.mu.Unlock()
	if err := f.call("Resize", fmt.Sprintf("%s %d/%dMi", c.config.Metadata.Name, r.Linux.CpuQuota,
		r.Linux.MemoryLimitInBytes>>20)); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	next := proto.CloneOf(c.status)
	next.Resources = proto.CloneOf(r)
	c.status = next
	return nil
}

// ContainerStats reports a usage of 50 MiB for every container.
func (f *fakeCRI) ContainerStats(context.Context, string) (*runtimeapi.ContainerStats, error) {
	return &runtimeapi.ContainerStats{Memory: &runtimeapi.MemoryUsage{WorkingSetBytes: &runtimeapi.UInt64Value{Value: 50 << 20}}}, nil
}

func limited(words ...string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: testpod.Resources(words...), Requests: testpod.Resources(words...)}
}

// resizeState returns the state of a resize from the status.
func resizeState(status corev1.PodStatus) string {
	var out []string
	for _, c := range status.Conditions {
		if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
			out = append(out, string(c.Type)+" "+c.Reason)
		}
	}
	c := status.ContainerStatuses[0]
	has, granted := c.Resources.Limits[corev1.ResourceMemory], c.AllocatedResources[corev1.ResourceMemory]
	return strings.Join(append(out, has.String(), granted.String()), ", ")
}

func TestResize(t *testing.T) {
	restart := []corev1.ContainerResizePolicy{{ResourceName: "memory", RestartPolicy: corev1.RestartContainer},
		{ResourceName: "cpu", RestartPolicy: corev1.NotRequired}}
	for name, test := range map[string]struct {
		policy []corev1.ContainerResizePolicy
		to     corev1.ResourceRequirements
		errors []error
		after  time.Duration
		calls  []string
		state  string
		starts int32
	}{
		"grows": {to: limited("cpu=1", "memory=128Mi"), calls: []string{"Resize pod 150000/192Mi", "Resize a 100000/128Mi"},
			state: "128Mi, 128Mi"},
		"shrinks": {to: limited("cpu=250m", "memory=60Mi"), calls: []string{"Resize a 25000/60Mi", "Resize pod 75000/124Mi"},
			state: "60Mi, 60Mi"},
		"CPU alone, in place although memory is not": {policy: restart, to: limited("cpu=1", "memory=64Mi"),
			calls: []string{"Resize pod 150000/128Mi", "Resize a 100000/64Mi"}, state: "64Mi, 64Mi"},
		"started anew": {policy: restart, to: limited("cpu=500m", "memory=128Mi"), after: time.Second,
			calls: []string{"Resize pod 100000/192Mi"}, state: "128Mi, 128Mi", starts: 1},
		"infeasible": {to: limited("cpu=64", "memory=64Mi"), errors: []error{status.Error(codes.ResourceExhausted, "too many CPUs")},
			after: time.Hour,
			calls: []string{"Resize pod 6450000/128Mi"}, state: "PodResizePending Infeasible, 64Mi, 64Mi"},
		"below its use": {to: limited("cpu=500m", "memory=10Mi"), after: 12 * time.Second, state: "PodResizeInProgress Error, 64Mi, 10Mi"},
		"tried again": {to: limited("cpu=500m", "memory=128Mi"), errors: []error{errors.New("no answer"), nil, errors.New("nor here")},
			after: 12 * time.Second,
			calls: []string{"Resize pod 100000/192Mi", "Resize pod 100000/192Mi", "Resize a 50000/128Mi", "Resize pod 100000/192Mi",
				"Resize a 50000/128Mi"}, state: "128Mi, 128Mi"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake, pod := newFake(), testpod.New("Always", "a", "b")
				for i := range pod.Spec.Containers {
					pod.Spec.Containers[i].Resources = limited("cpu=500m", "memory=64Mi")
				}
				pod.Spec.Containers[0].ResizePolicy = test.policy
				fake.errors["Resize"] = test.errors
				s := supervise(t, fake, pod)
				generation, err := s.Resize("a", test.to)
				if err != nil || generation != 1 {
					t.Fatalf("generation %d, %v", generation, err)
				}
				status := s.after(test.after)
				if diff := cmp.Diff(test.calls, fake.called("Resize")); diff != "" {
					t.Error(diff)
				}
				if got := resizeState(status); got != test.state || status.ObservedGeneration != 1 {
					t.Errorf("%q at generation %d, want %q", got, status.ObservedGeneration, test.state)
				}
				if c := status.ContainerStatuses[0]; c.RestartCount != test.starts || c.State.Running == nil {
					t.Errorf("container %+v", c)
				}
				if now := s.Spec().Spec.Containers[0].Resources; !sameLists(now.Limits, test.to.Limits) {
					t.Errorf("the pod asks for %v", now)
				}
				if !sameLists(pod.Spec.Containers[0].Resources.Limits, testpod.Resources("cpu=500m", "memory=64Mi")) {
					t.Error("the given pod was changed")
				}
			})
		})
	}
}

func sameLists(a, b corev1.ResourceList) bool {
	for name, quantity := range a {
		other := b[name]
		if quantity.Cmp(other) != 0 {
			return false
		}
	}
	return len(a) == len(b)
}

// TestResizeAfterInfeasible: a feasible resize replaces an infeasible one.
func TestResizeAfterInfeasible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, pod := newFake(), testpod.New("Always", "a")
		pod.Spec.Containers[0].Resources = limited("cpu=500m", "memory=64Mi")
		fake.errors["Resize"] = []error{status.Error(codes.ResourceExhausted, "too much")}
		s := supervise(t, fake, pod)
		for _, memory := range []string{"memory=8Gi", "memory=96Mi"} {
			if _, err := s.Resize("a", limited("cpu=500m", memory)); err != nil {
				t.Fatal(err)
			}
			s.after(time.Second)
		}
		if got := resizeState(s.Status()); got != "96Mi, 96Mi" {
			t.Errorf("%q", got)
		}
		var reasons []string
		for _, e := range s.events {
			if strings.HasPrefix(e.Reason, "Resize") {
				reasons = append(reasons, e.Reason)
			}
		}
		if diff := cmp.Diff([]string{"ResizeStarted", "ResizeInfeasible", "ResizeStarted", "ResizeCompleted"}, reasons); diff != "" {
			t.Error(diff)
		}
	})
}

// TestInfeasibleLeavesThePodAsItWas: restarted containers and new VMs do not get infeasible resources.
func TestInfeasibleLeavesThePodAsItWas(t *testing.T) {
	for name, late := range map[string]bool{"running": false, "taken over": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake, pod := newFake(), testpod.New("Always", "a")
				pod.Spec.Containers[0].Resources = limited("cpu=500m", "memory=64Mi")
				fake.errors["Resize"] = []error{status.Error(codes.ResourceExhausted, "too much")}
				s := supervise(t, fake, pod)
				if late {
					s.cancel()
					s.end()
					s = supervise(t, fake, pod)
				}
				if _, err := s.Resize("a", limited("cpu=63", "memory=64Gi")); err != nil {
					t.Fatal(err)
				}
				s.after(time.Second)
				fake.mu.Lock()
				for _, c := range fake.containers {
					fake.end(c, 1, "")
				}
				fake.mu.Unlock()
				s.after(time.Second)
				fake.die(s.Sandbox(), false)
				now := s.after(time.Minute)
				if got := resizeState(now); got != "PodResizePending Infeasible, 64Mi, 64Mi" || now.ContainerStatuses[0].RestartCount != 2 {
					t.Errorf("%q after %d restarts", got, now.ContainerStatuses[0].RestartCount)
				}
				for id, c := range fake.containers {
					if got := c.config.Linux.Resources.MemoryLimitInBytes; got != 64<<20 {
						t.Errorf("container %s has %d bytes", id, got)
					}
				}
				for id, sandbox := range fake.sandboxes {
					if got := sandbox.config.Linux.Resources.MemoryLimitInBytes; got != 64<<20 {
						t.Errorf("VM %s has %d bytes", id, got)
					}
				}
				if wish := s.Spec().Spec.Containers[0].Resources.Limits[corev1.ResourceMemory]; wish.String() != "64Gi" {
					t.Errorf("the pod asks for %s", wish.String())
				}
			})
		})
	}
}

// TestResizeDuringAnInfeasibleOne: an answer to an outdated request does not apply to the current one.
func TestResizeDuringAnInfeasibleOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, pod := newFake(), testpod.New("Always", "a")
		pod.Spec.Containers[0].Resources = limited("cpu=500m", "memory=64Mi")
		fake.errors["Resize"] = []error{status.Error(codes.ResourceExhausted, "too much")}
		gate := make(chan struct{})
		fake.hold["Resize"] = gate
		s := supervise(t, fake, pod)
		for _, memory := range []string{"memory=64Gi", "memory=96Mi"} {
			if _, err := s.Resize("a", limited("cpu=500m", memory)); err != nil {
				t.Fatal(err)
			}
			s.after(time.Second)
		}
		close(gate)
		if got := resizeState(s.after(time.Second)); got != "96Mi, 96Mi" {
			t.Errorf("%q", got)
		}
	})
}

func TestResizeRefuses(t *testing.T) {
	pod := testpod.New("Always", "a", "b")
	pod.Spec.Containers[0].Resources = limited("cpu=500m", "memory=64Mi", "ephemeral-storage=1Gi")
	pod.Spec.Containers[1].Resources = limited("cpu=500m", "memory=64Mi")
	pod.Spec.InitContainers = []corev1.Container{{Name: "first", Resources: limited("cpu=500m", "memory=64Mi")}}
	fake := newFake()
	p, err := New(Options{Options: config.Options{Pod: pod}, Runtime: fake, Images: fake})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		container string
		to        corev1.ResourceRequirements
		want      string
	}{
		"unknown":           {container: "c", to: limited("cpu=1"), want: "no such container or sidecar"},
		"an init container": {container: "first", to: limited("cpu=1"), want: "no such container or sidecar"},
		"storage":           {container: "a", to: limited("cpu=500m", "memory=64Mi", "ephemeral-storage=2Gi"), want: "only cpu and memory"},
		"a new resource":    {container: "b", to: limited("cpu=500m", "memory=64Mi", "hugepages-2Mi=2Mi"), want: "only cpu and memory"},
		"a limit goes": {container: "b", to: corev1.ResourceRequirements{Limits: testpod.Resources("cpu=1"),
			Requests: testpod.Resources("cpu=1", "memory=64Mi")}, want: "the limit of memory cannot be removed"},
		"a request goes": {container: "b", to: corev1.ResourceRequirements{Limits: testpod.Resources("cpu=1", "memory=64Mi"),
			Requests: testpod.Resources("cpu=1")}, want: "the request of memory cannot be removed"},
		"negative": {container: "b", to: limited("cpu=-1", "memory=64Mi"), want: "negative"},
		"more than it may": {container: "b", to: corev1.ResourceRequirements{Limits: testpod.Resources("cpu=1", "memory=64Mi"),
			Requests: testpod.Resources("cpu=2", "memory=64Mi")}, want: "more than the limit"},
		"guaranteed no more": {container: "b", to: corev1.ResourceRequirements{Limits: testpod.Resources("cpu=1", "memory=64Mi"),
			Requests: testpod.Resources("cpu=500m", "memory=64Mi")},
			want: "QoS class would change from Guaranteed to Burstable: change the request and the limit equally"},
	} {
		if _, err := p.Resize(test.container, test.to); !errors.Is(err, errResize) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
