package pod

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
)

// stuck returns a pod with a running container "a" and a container "b" with a call that hangs.
func stuck(t *testing.T, call string, change ...func(*corev1.Pod)) (*fakeCRI, *supervised) {
	t.Helper()
	fake := newFake()
	fake.hold[call+" b"] = make(chan struct{})
	pod := testpod.New("Always", "a", "b")
	for _, change := range change {
		change(pod)
	}
	s := supervise(t, fake, pod)
	s.after(time.Second)
	if got := fake.called(call); got[len(got)-1] != call+" b" && got[len(got)-1] != call+" b/0" {
		t.Fatalf("calls %v", got)
	}
	return fake, s
}

// TestStopDuringAStart: a stop does not wait for a creation or a start, and undoes them.
func TestStopDuringAStart(t *testing.T) {
	for _, test := range []struct {
		call    string
		removed int
	}{{"CreateContainer", 0}, {"StartContainer", 1}} {
		for _, grace := range []time.Duration{0, 30 * time.Second} {
			t.Run(test.call+" "+grace.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fake, s := stuck(t, test.call)
					began := time.Now()
					if err := s.Stop(t.Context(), grace); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); took > time.Second {
						t.Errorf("it took %v", took)
					}
					if got := fake.called("RemoveContainer"); len(got) != test.removed {
						t.Errorf("removed %v", got)
					}
					if got := fake.called("StopContainer"); len(got) != 1 || !strings.HasPrefix(got[0], "StopContainer a/") {
						t.Errorf("stopped %v", got)
					}
					if err := s.end(); err != nil {
						t.Error(err)
					}
					if told := s.messages("Failed"); len(told) > 0 {
						t.Errorf("events %v", told)
					}
				})
			})
		}
	}
}

// TestStopAfterAStartThatSucceeded: a container that runs although its start was cancelled gets its signal and its
// grace.
func TestStopAfterAStartThatSucceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, s := stuck(t, "StartContainer")
		fake.late = true
		if err := s.Stop(t.Context(), 30*time.Second); err != nil {
			t.Fatal(err)
		}
		want := []string{"StopContainer a/30", "StopContainer b/30"}
		if diff := cmp.Diff(want, slices.Sorted(slices.Values(fake.called("StopContainer")))); diff != "" {
			t.Error(diff)
		}
		if got := fake.called("RemoveContainer"); len(got) > 0 {
			t.Errorf("removed %v", got)
		}
	})
}

// TestDeadlineDuringAStart: the pod's active deadline ends it while a container is being created.
func TestDeadlineDuringAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := stuck(t, "CreateContainer", func(pod *corev1.Pod) { pod.Spec.ActiveDeadlineSeconds = new(int64(5)) })
		if status := s.after(5 * time.Second); status.Phase != corev1.PodFailed || status.Reason != ReasonDeadline {
			t.Errorf("%s %s", status.Phase, status.Reason)
		}
	})
}

// TestProbesDuringAStart: running containers are probed, restarted and reported while another one is being created.
func TestProbesDuringAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, s := stuck(t, "CreateContainer", func(pod *corev1.Pod) {
			pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1, TimeoutSeconds: 1,
				ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ready"}}}}
			pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1, TimeoutSeconds: 1,
				InitialDelaySeconds: 20, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"live"}}}}
		})
		two := s.after(2 * time.Second).ContainerStatuses
		if !two[0].Ready || state(two[1]) != "waiting ContainerCreating" {
			t.Errorf("%+v", two)
		}
		fake.mu.Lock()
		fake.execs["live"] = fakeExec{err: status.Error(codes.DeadlineExceeded, "sick")}
		fake.mu.Unlock()
		now := s.after(30 * time.Second)
		if got := fake.called("StopContainer"); len(got) != 1 || got[0] != "StopContainer a/30" {
			t.Errorf("stopped %v", got)
		}
		if got := state(now.ContainerStatuses[0]); got != "terminated Error" {
			t.Errorf("the sick container is %s", got)
		}
		fake.mu.Lock()
		delete(fake.execs, "live")
		fake.mu.Unlock()
		close(fake.hold["CreateContainer b"])
		now = s.after(15 * time.Second)
		for _, c := range now.ContainerStatuses {
			if state(c) != "running" || !c.Ready {
				t.Errorf("%s: %s, ready %v", c.Name, state(c), c.Ready)
			}
		}
		want := []string{"CreateContainer a/0", "CreateContainer b/0", "CreateContainer a/1"}
		if diff := cmp.Diff(want, fake.called("CreateContainer")); diff != "" {
			t.Error(diff)
		}
	})
}

// TestStartHasADeadline: a hanging creation counts as failed, and is retried.
func TestStartHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, s := stuck(t, "StartContainer")
		status := s.after(containerDeadline)
		if got := state(status.ContainerStatuses[1]); got != "waiting RunContainerError" {
			t.Error(got)
		}
		close(fake.hold["StartContainer b"])
		if got := state(s.after(15 * time.Second).ContainerStatuses[1]); got != "running" {
			t.Error(got)
		}
		if got := fake.called("RemoveContainer"); len(got) != 1 {
			t.Errorf("removed %v", got)
		}
	})
}

// TestVMDiesDuringAStart: the start ends with its VM, and the next VM gets both containers once.
func TestVMDiesDuringAStart(t *testing.T) {
	for _, call := range []string{"CreateContainer", "StartContainer"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake, s := stuck(t, call)
				held := fake.hold[call+" b"]
				fake.mu.Lock()
				delete(fake.hold, call+" b")
				fake.mu.Unlock()
				defer close(held)
				fake.die(s.Sandbox(), false)
				status := s.after(15 * time.Second)
				for _, c := range status.ContainerStatuses {
					if state(c) != "running" {
						t.Errorf("%s: %s", c.Name, state(c))
					}
				}
				if got := len(fake.called("RunPodSandbox")); got != 2 {
					t.Errorf("%d sandboxes", got)
				}
				if told := s.messages("Failed"); len(told) > 0 {
					t.Errorf("events %v", told)
				}
				if got := status.ContainerStatuses[1].RestartCount; got != 0 {
					t.Errorf("%d restarts of a container that never ran", got)
				}
			})
		})
	}
}

// TestUpdateDuringAStart: a container that is being created from an outdated image is restarted with the new one.
func TestUpdateDuringAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, s := stuck(t, "CreateContainer")
		next := s.Spec()
		next.Generation++
		next.Spec.Containers[1].Image = "away:2"
		s.Update(next, nil)
		s.after(time.Second)
		close(fake.hold["CreateContainer b"])
		c := s.after(time.Minute).ContainerStatuses[1]
		if state(c) != "running" || c.Image != "away:2" || !strings.Contains(c.ImageID, "away:2") {
			t.Errorf("%s, %s, %s", state(c), c.Image, c.ImageID)
		}
		if got := fake.called("PullImage"); len(got) != 1 {
			t.Errorf("pulled %v", got)
		}
	})
}

// TestResizeDuringAStart: a resize is not complete before the container that is being created has its resources.
func TestResizeDuringAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, s := stuck(t, "CreateContainer", func(pod *corev1.Pod) { pod.Spec.Containers[1].Resources = limited("cpu=1") })
		generation, err := s.Resize("b", limited("cpu=2"))
		if err != nil {
			t.Fatal(err)
		}
		status := s.after(time.Second)
		if got := status.ContainerStatuses[1].Resources.Limits.Cpu().String(); got != "1" || status.ObservedGeneration != generation {
			t.Errorf("cpu %s of generation %d", got, status.ObservedGeneration)
		}
		close(fake.hold["CreateContainer b"])
		status = s.after(10 * time.Second)
		if got := status.ContainerStatuses[1].Resources.Limits.Cpu().String(); got != "2" || state(status.ContainerStatuses[1]) != "running" {
			t.Errorf("cpu %s, %s", got, state(status.ContainerStatuses[1]))
		}
		if got := fake.called("Resize"); !slices.Contains(got, "Resize b 200000/0Mi") {
			t.Errorf("updated %v", got)
		}
	})
}

// TestEngineEndsDuringAStart: a Run that ends cancels the start and leaves the pod to the next one.
func TestEngineEndsDuringAStart(t *testing.T) {
	for _, call := range []string{"CreateContainer", "StartContainer"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake, first := stuck(t, call)
				began := time.Now()
				first.cancel()
				first.end()
				if took := time.Since(began); took > 0 {
					t.Errorf("Run ended after %v", took)
				}
				if got := fake.called("RemoveContainer", "StopContainer", "StopPodSandbox"); len(got) > 0 {
					t.Errorf("the pod was touched: %v", got)
				}
				close(fake.hold[call+" b"])
				second := supervise(t, fake, first.Spec())
				for _, c := range second.after(time.Second).ContainerStatuses {
					if state(c) != "running" || c.RestartCount != 0 {
						t.Errorf("%s: %s, %d restarts", c.Name, state(c), c.RestartCount)
					}
				}
			})
		})
	}
}

// TestSlowVolumes: a stop does not wait for the objects of volumes, nor for the size of the VM.
func TestSlowVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := testpod.New("Always", "a")
		pod.Spec.Volumes = []corev1.Volume{{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{Path: "cpu", ResourceFieldRef: &corev1.ResourceFieldSelector{
				ContainerName: "a", Resource: "limits.cpu"}}},
		}}}}
		s := supervise(t, newFake(), pod, func(o *Options) {
			o.VolumeDir = t.TempDir()
			o.Allocatable = func(ctx context.Context, _ string) (corev1.ResourceList, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		})
		s.after(time.Second)
		began := time.Now()
		if err := s.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		if told := s.messages("FailedMount"); len(told) > 0 {
			t.Errorf("events %v", told)
		}
	})
}
