package pod

import (
	"errors"
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

// TestTakeOverARunningPod: when an engine process dies, its pods continue, and the next engine adopts them.
func TestTakeOverARunningPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["a"] = []life{{lasts: time.Second, code: 1}, {}}
		pod := testpod.New("Always", "a", "b")
		first := supervise(t, fake, pod)
		first.after(5 * time.Second)
		before := first.Status()
		first.cancel()
		if err := first.end(); err == nil {
			t.Error("Run ended without an error for its context")
		}
		if stops := fake.called("StopContainer", "StopPodSandbox"); len(stops) > 0 {
			t.Errorf("the pod was touched: %v", stops)
		}
		calls := len(fake.called("RunPodSandbox", "CreateContainer", "StartContainer"))
		second := supervise(t, fake, pod)
		status := second.after(time.Minute)
		if got := len(fake.called("RunPodSandbox", "CreateContainer", "StartContainer")); got != calls {
			t.Errorf("%d more calls", got-calls)
		}
		if diff := cmp.Diff(before.ContainerStatuses, status.ContainerStatuses); diff != "" {
			t.Error(diff)
		}
		if status.ContainerStatuses[0].RestartCount != 1 || !status.StartTime.Equal(before.StartTime) {
			t.Errorf("restarts %d, start %v, before %v", status.ContainerStatuses[0].RestartCount, status.StartTime, before.StartTime)
		}
		if err := second.Kill(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestTakeOverKeepsTheBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["main"] = []life{{lasts: time.Second, code: 1}}
		pod := testpod.New("Always", "main")
		first := supervise(t, fake, pod)
		first.after(40 * time.Second) // after four runs, 40 s of waiting begin
		first.cancel()
		first.end()
		starts := len(fake.called("StartContainer"))
		second := supervise(t, fake, pod)
		if status := second.Status(); state(status.ContainerStatuses[0]) != "waiting CrashLoopBackOff" {
			t.Errorf("%s", state(status.ContainerStatuses[0]))
		}
		if got := len(fake.called("StartContainer")); got != starts {
			t.Errorf("restarted at once: %d starts, then %d", starts, got)
		}
		second.after(time.Minute)
		if got := len(fake.called("StartContainer")); got != starts+1 {
			t.Errorf("%d starts, then %d", starts, got)
		}
	})
}

func TestTakeOverAContainerThatWasNeverStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		pod := testpod.New("Never", "main")
		options := &config.Options{Pod: pod}
		sandbox := config.Sandbox(options, 0)
		id, err := fake.RunPodSandbox(t.Context(), sandbox, "")
		if err != nil {
			t.Fatal(err)
		}
		container, err := config.Container(t.Context(), options, &pod.Spec.Containers[0], config.Launch{})
		if err != nil {
			t.Fatal(err)
		}
		stale, err := fake.CreateContainer(t.Context(), id, container, sandbox)
		if err != nil {
			t.Fatal(err)
		}
		s := supervise(t, fake, pod)
		if status := s.Status(); state(status.ContainerStatuses[0]) != "running" || status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s, restarts %d", state(status.ContainerStatuses[0]), status.ContainerStatuses[0].RestartCount)
		}
		if removed := fake.called("RemoveContainer"); !cmp.Equal(removed, []string{"RemoveContainer " + stale}) {
			t.Errorf("removed %v", removed)
		}
	})
}

func TestTakeOverAPodThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["main"] = []life{{lasts: time.Second, code: 4}, {lasts: time.Second}}
		pod := testpod.New("Never", "main")
		supervise(t, fake, pod).end()
		again := supervise(t, fake, pod)
		if err := again.end(); err != nil {
			t.Fatal(err)
		}
		if code, known := again.ExitCode(); code != 4 || !known {
			t.Errorf("exit code %d, known %v", code, known)
		}
		if starts := fake.called("StartContainer"); len(starts) != 1 {
			t.Errorf("started again: %v", starts)
		}
		if err := again.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		fresh := supervise(t, fake, pod)
		if err := fresh.end(); err != nil {
			t.Fatal(err)
		}
		if code, _ := fresh.ExitCode(); code != 0 {
			t.Errorf("exit code %d of a run after Delete", code)
		}
	})
}

// TestFirstLookIsTold: Published is called after the first observation, even if the status did not change.
func TestFirstLookIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.hold["RunPodSandbox"] = make(chan struct{})
		defer close(fake.hold["RunPodSandbox"])
		var s *supervised
		begin, told := make(chan struct{}), 0
		s = supervise(t, fake, testpod.New("Always", "main"), func(o *Options) {
			o.Published = func() {
				<-begin
				select {
				case <-s.Observed():
					told++
				default:
				}
			}
		})
		close(begin)
		synctest.Wait()
		if told == 0 {
			t.Error("Published was not called")
		}
	})
}

// TestUserOfAContainer: the status contains the user of the first process, if the runtime reports it.
func TestUserOfAContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		s := supervise(t, fake, testpod.New("Always", "main", "other"))
		fake.mu.Lock()
		for _, c := range fake.containers {
			if c.config.Metadata.Name == "main" {
				c.status = proto.CloneOf(c.status)
				c.status.User = &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: 1, Gid: 2, SupplementalGroups: []int64{2, 3}}}
			}
		}
		fake.mu.Unlock()
		s.Changed()
		status := s.after(time.Second)
		want := &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: 1, GID: 2, SupplementalGroups: []int64{2, 3}}}
		if diff := cmp.Diff([]*corev1.ContainerUser{want, nil}, []*corev1.ContainerUser{
			status.ContainerStatuses[0].User, status.ContainerStatuses[1].User,
		}); diff != "" {
			t.Error(diff)
		}
	})
}

func TestVMDies(t *testing.T) {
	tests := []struct {
		name   string
		policy corev1.RestartPolicy
		lost   bool // the runtime still reports the container as running
		again  bool
	}{
		{name: "always", policy: "Always", again: true},
		{name: "on failure", policy: "OnFailure", again: true},
		{name: "never", policy: "Never"},
		{name: "always, lost", policy: "Always", lost: true, again: true},
		{name: "never, lost", policy: "Never", lost: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				s := supervise(t, fake, testpod.New(test.policy, "main"))
				fake.die(s.Sandbox(), test.lost)
				status := s.after(time.Second)
				told := 0
				for _, event := range s.events {
					if event.Reason == ReasonVMKilled && event.Warning {
						told++
					}
				}
				if told != 1 {
					t.Errorf("%d events say that the VM was killed: %v", told, s.events)
				}
				if status.PodIP != "10.0.2.15" {
					t.Errorf("pod ip %q", status.PodIP)
				}
				if !test.again {
					if err := s.end(); err != nil {
						t.Error(err)
					}
					end := s.Status().ContainerStatuses[0].State.Terminated
					if s.Status().Reason != ReasonVMKilled {
						t.Errorf("the pod's reason is %q", s.Status().Reason)
					}
					if s.Status().Phase != corev1.PodFailed || end == nil || end.Reason != "VMKilled" || end.ExitCode == 0 {
						t.Errorf("phase %s, %+v", s.Status().Phase, end)
					}
					return
				}
				if state(status.ContainerStatuses[0]) != "running" || status.ContainerStatuses[0].RestartCount != 1 {
					t.Errorf("%s, restarts %d", state(status.ContainerStatuses[0]), status.ContainerStatuses[0].RestartCount)
				}
				if last := status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.Reason != "VMKilled" {
					t.Errorf("last state %+v", last)
				}
				want := []string{"RunPodSandbox 0", "RunPodSandbox 1"}
				if diff := cmp.Diff(want, fake.called("RunPodSandbox")); diff != "" {
					t.Error(diff)
				}
				var changed bool
				for _, event := range s.events {
					changed = changed || event.Reason == "SandboxChanged"
				}
				if !changed {
					t.Error("no event SandboxChanged")
				}
			})
		})
	}
}

func TestPassingErrorsAreNotFinal(t *testing.T) {
	passing := errors.New("passing")
	for name, method := range map[string]string{
		"sandbox": "RunPodSandbox", "create": "CreateContainer", "start": "StartContainer", "image": "ImageStatus", "list": "ListPodSandbox",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.errors[method] = []error{passing, passing}
				s := supervise(t, fake, testpod.New("Never", "main"))
				if status := s.Status(); status.Phase != corev1.PodPending {
					t.Errorf("phase %s", status.Phase)
				}
				status := s.after(time.Minute)
				if state(status.ContainerStatuses[0]) != "running" {
					t.Errorf("%s", state(status.ContainerStatuses[0]))
				}
			})
		})
	}
}

func TestFailFast(t *testing.T) {
	failed := errors.New("out of luck")
	for name, test := range map[string]struct {
		method string
		class  error
	}{"sandbox": {method: "RunPodSandbox", class: ErrStart}, "create": {method: "CreateContainer", class: ErrStart},
		"start": {method: "StartContainer", class: ErrStart}, "image": {method: "ImageStatus", class: ErrImage}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.errors[test.method] = []error{failed}
				s := supervise(t, fake, testpod.New("Always", "main"), func(o *Options) { o.FailFast = true })
				err := s.end()
				if !errors.Is(err, test.class) || !errors.Is(err, failed) {
					t.Errorf("error %v", err)
				}
				if status := s.Status(); status.Phase != corev1.PodFailed || status.Message == "" {
					t.Errorf("phase %s, message %q", status.Phase, status.Message)
				}
				for id, sandbox := range fake.sandboxes {
					if sandbox.status.State == runtimeapi.PodSandboxState_SANDBOX_READY {
						t.Errorf("sandbox %s is left", id)
					}
				}
			})
		})
	}
}

// TestPlainRuntime: a runtime that offers only the CRI refuses options beyond the CRI by name, and starts no container
// without them.
func TestPlainRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		group := int64(77)
		pod := testpod.New("Always", "main")
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
		s := supervise(t, fake, pod, func(o *Options) { o.FailFast = true })
		if err := s.end(); !errors.Is(err, config.ErrBeyondCRI) || !strings.Contains(err.Error(), "fsGroup") {
			t.Errorf("%v", err)
		}
		if len(fake.sandboxes) > 0 {
			t.Errorf("started: %v", fake.sandboxes)
		}
	})
}

func TestFailFastIsForTheStartOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["main"] = []life{{lasts: time.Second, code: 1}, {}}
		s := supervise(t, fake, testpod.New("Always", "main"), func(o *Options) { o.FailFast = true })
		fake.mu.Lock()
		fake.errors["CreateContainer"] = []error{errors.New("passing")}
		fake.mu.Unlock()
		if status := s.after(time.Minute); state(status.ContainerStatuses[0]) != "running" {
			t.Errorf("%s", state(status.ContainerStatuses[0]))
		}
	})
}

func TestTheSubscriptionIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["main"] = []life{{lasts: time.Hour, code: 0}}
		s := supervise(t, fake, testpod.New("Never", "main"))
		fake.mu.Lock()
		for queue := range fake.listeners {
			queue <- nil // the runtime ends the subscription
		}
		fake.mu.Unlock()
		s.after(time.Minute)
		if got := len(fake.called("GetContainerEvents")); got != 2 {
			t.Errorf("%d subscriptions", got)
		}
		if err := s.end(); err != nil || s.Status().Phase != corev1.PodSucceeded {
			t.Errorf("%v, phase %s", err, s.Status().Phase)
		}
	})
}

// TestNoPolling: an idle pod causes no calls of the runtime.
func TestNoPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		supervise(t, fake, testpod.New("Always", "main")).after(0)
		fake.mu.Lock()
		before := len(fake.calls)
		fake.mu.Unlock()
		time.Sleep(24 * time.Hour)
		fake.mu.Lock()
		defer fake.mu.Unlock()
		if len(fake.calls) != before {
			t.Errorf("%d calls in an idle day", len(fake.calls)-before)
		}
	})
}

// TestFailFastLeavesTheOthersTheirGrace: when a container fails a foreground run, other running containers get the
// pod's grace.
func TestFailFastLeavesTheOthersTheirGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		pod := testpod.New("Always", "main", "other")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(7))
		pod.Spec.Containers[1].Image = "away:1"
		fake.pulls["away:1"] = []error{errors.New("registry is gone")}
		fake.hold["away:1"] = make(chan struct{})
		s := supervise(t, fake, pod, func(o *Options) { o.FailFast = true })
		if got := state(s.after(time.Second).ContainerStatuses[0]); got != "running" {
			t.Fatalf("main is %s", got)
		}
		close(fake.hold["away:1"])
		if err := s.end(); !errors.Is(err, ErrImage) || strings.Count(err.Error(), "away:1") != 1 {
			t.Errorf("error %v", err)
		}
		if diff := cmp.Diff([]string{"StopContainer main/7"}, fake.called("StopContainer")); diff != "" {
			t.Error(diff)
		}
	})
}

// TestSilentRuntime: a pod does not end because the runtime does not answer at first, unless it fails fast.
func TestSilentRuntime(t *testing.T) {
	for _, fast := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFake()
			away := status.Error(codes.Unavailable, "away")
			fake.errors["GetContainerEvents"] = []error{away, away, away}
			s := supervise(t, fake, testpod.New("Always", "main"), func(o *Options) { o.FailFast = fast })
			got := s.after(5 * time.Second)
			select {
			case err := <-s.ended:
				if !fast || status.Code(err) != codes.Unavailable {
					t.Errorf("ended: %v", err)
				}
			default:
				if fast || state(got.ContainerStatuses[0]) != "running" {
					t.Errorf("container is %s", state(got.ContainerStatuses[0]))
				}
			}
		})
	}
}
