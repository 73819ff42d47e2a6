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
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/internal/test/testclock"
	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/instance"
)

// supervised is a pod under Run in a synctest bubble.
type supervised struct {
	*Pod
	t      *testing.T
	events []Event
	cancel context.CancelFunc
	ended  chan error
}

func supervise(t *testing.T, fake *fakeCRI, pod *corev1.Pod, change ...func(*Options)) *supervised {
	t.Helper()
	s := &supervised{t: t, ended: make(chan error, 1)}
	options := Options{
		Options: config.Options{Pod: pod, LogDir: t.TempDir()}, Runtime: fake, Images: fake,
		Event: func(e Event) { s.events = append(s.events, e) },
	}
	for _, change := range change {
		change(&options)
	}
	p, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Pod = p
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	go func() { s.ended <- p.Run(ctx) }()
	t.Cleanup(func() { cancel(); synctest.Wait() })
	synctest.Wait()
	return s
}

// after advances the time and runs everything that is due.
func (s *supervised) after(d time.Duration) corev1.PodStatus {
	s.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	return s.Status()
}

// end waits for the end of Run.
func (s *supervised) end() error {
	s.t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(24 * time.Hour):
		s.t.Fatalf("the pod does not end: %+v", s.Status())
		return nil
	}
}

// state returns a container's state in short: "running", or the reason for its waiting or end.
func state(c corev1.ContainerStatus) string {
	switch {
	case c.State.Running != nil:
		return "running"
	case c.State.Waiting != nil:
		return "waiting " + c.State.Waiting.Reason
	case c.State.Terminated != nil:
		return "terminated " + c.State.Terminated.Reason
	}
	return "nothing"
}

func conditions(status corev1.PodStatus) map[string]string {
	out := map[string]string{}
	for _, c := range status.Conditions {
		out[string(c.Type)] = strings.TrimSpace(string(c.Status) + " " + c.Reason)
	}
	return out
}

func TestRunToTheEnd(t *testing.T) {
	tests := []struct {
		name   string
		policy corev1.RestartPolicy
		lives  []life
		starts int
		phase  corev1.PodPhase
		state  string
		code   int
	}{
		{name: "never, good", policy: "Never", lives: []life{{lasts: time.Second}}, starts: 1, phase: "Succeeded", state: "terminated Completed"},
		{name: "never, bad", policy: "Never", lives: []life{{lasts: time.Second, code: 3}}, starts: 1, phase: "Failed",
			state: "terminated Error", code: 3},
		{name: "never, killed for memory", policy: "Never", lives: []life{{lasts: time.Second, code: 137, reason: "OOMKilled"}}, starts: 1,
			phase: "Failed", state: "terminated OOMKilled", code: 137},
		{name: "on failure, good", policy: "OnFailure", lives: []life{{lasts: time.Second}}, starts: 1, phase: "Succeeded",
			state: "terminated Completed"},
		{name: "on failure, succeeds at the third run", policy: "OnFailure",
			lives: []life{{lasts: time.Second, code: 1}, {lasts: time.Second, code: 2}, {lasts: time.Second}}, starts: 3, phase: "Succeeded",
			state: "terminated Completed"},
		{name: "missing command", policy: "Never", lives: []life{{fails: errors.New("no such file"), code: 127}}, starts: 1, phase: "Failed",
			state: "terminated StartError", code: 127},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.scripts["main"] = test.lives
				s := supervise(t, fake, testpod.New(test.policy, "main"))
				if err := s.end(); err != nil {
					t.Fatal(err)
				}
				status := s.Status()
				if status.Phase != test.phase || state(status.ContainerStatuses[0]) != test.state {
					t.Errorf("phase %s, container %s", status.Phase, state(status.ContainerStatuses[0]))
				}
				if code, known := s.ExitCode(); code != test.code || !known {
					t.Errorf("exit code %d, known %v", code, known)
				}
				if end := status.ContainerStatuses[0].State.Terminated; end.Reason == runtimev1.ReasonStart && end.ExitCode != 128 {
					t.Errorf("the container's exit code is %d", end.ExitCode)
				}
				if starts := len(fake.called("StartContainer")); starts != test.starts {
					t.Errorf("%d starts, want %d", starts, test.starts)
				}
				if int(status.ContainerStatuses[0].RestartCount) != test.starts-1 {
					t.Errorf("restart count %d", status.ContainerStatuses[0].RestartCount)
				}
				if stops := fake.called("StopPodSandbox"); len(stops) == 0 {
					t.Error("the sandbox was not stopped")
				}
				if err := s.Delete(t.Context()); err != nil {
					t.Error(err)
				}
				if len(fake.sandboxes)+len(fake.containers) > 0 {
					t.Errorf("left: %v %v", fake.sandboxes, fake.containers)
				}
				if err := s.Delete(t.Context()); err != nil {
					t.Errorf("a second delete: %v", err)
				}
			})
		})
	}
}

func TestRestartsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["main"] = []life{{lasts: time.Second, code: 1}}
		begin := time.Now()
		var at []time.Duration
		told := make(map[string]int)
		pod := testpod.New("Always", "main")
		s := supervise(t, fake, pod, func(o *Options) {
			o.Event = func(e Event) {
				switch e.Reason {
				case "Started":
					at = append(at, e.Time.Sub(begin))
				case "BackOff":
					told[e.Message]++
				}
			}
		})
		status := s.after(5 * time.Second) // the second run has ended
		container := status.ContainerStatuses[0]
		if state(container) != "waiting CrashLoopBackOff" || container.RestartCount != 1 || status.Phase != corev1.PodRunning {
			t.Errorf("%s, restarts %d, phase %s", state(container), container.RestartCount, status.Phase)
		}
		if last := container.LastTerminationState.Terminated; last == nil || last.ExitCode != 1 {
			t.Errorf("last state %+v", last)
		}
		if w := container.State.Waiting; w != nil && !strings.HasPrefix(w.Message, "back-off 10s restarting failed container=main pod=") {
			t.Errorf("waits: %s", w.Message)
		}
		s.after(30 * time.Minute)
		// One counted event, instead of one for each delay.
		event := fmt.Sprintf("Back-off restarting failed container main in pod %s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
		if len(told) != 1 || told[event] < 8 {
			t.Errorf("events %v", told)
		}
		var delays []time.Duration
		for i := 1; i < len(at) && i < 9; i++ {
			delays = append(delays, (at[i] - at[i-1] - time.Second).Round(time.Second))
		}
		want := []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second,
			300 * time.Second, 300 * time.Second}
		if diff := cmp.Diff(want, delays); diff != "" {
			t.Error(diff)
		}
		fake.mu.Lock()
		defer fake.mu.Unlock()
		if len(fake.containers) > 2 {
			t.Errorf("%d dead containers are kept", len(fake.containers))
		}
	})
}

func TestBackOffBeginsAnewAfterACalmTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		short, long := life{lasts: time.Second, code: 1}, life{lasts: 11 * time.Minute, code: 1}
		fake.scripts["main"] = []life{short, short, short, long, short, {}}
		s := supervise(t, fake, testpod.New("Always", "main"))
		s.after(time.Minute) // the fourth, long run: 0 + 10 + 20 s of waiting
		if got := len(fake.called("StartContainer")); got != 4 {
			t.Fatalf("%d starts before the long run", got)
		}
		// The restart is immediate, and the next one waits for 10 s again.
		status := s.after(11*time.Minute - 20*time.Second)
		if got := len(fake.called("StartContainer")); got != 5 {
			t.Fatalf("%d starts after the long run: %s", got, state(status.ContainerStatuses[0]))
		}
		if status := s.after(12 * time.Second); state(status.ContainerStatuses[0]) != "running" {
			t.Errorf("%s", state(status.ContainerStatuses[0]))
		}
	})
}

func TestContainersStartInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		pod := testpod.New("Always", "a", "b", "c")
		pod.Spec.Containers[0].Image = "slow:1"
		fake.hold["slow:1"] = make(chan struct{})
		s := supervise(t, fake, pod)
		status := s.after(time.Minute)
		if got := fake.called("CreateContainer"); len(got) != 0 {
			t.Errorf("created before the first one's image was there: %v", got)
		}
		if status.Phase != corev1.PodPending || state(status.ContainerStatuses[1]) != "waiting ContainerCreating" {
			t.Errorf("phase %s, second container %s", status.Phase, state(status.ContainerStatuses[1]))
		}
		close(fake.hold["slow:1"])
		status = s.after(0)
		want := []string{"CreateContainer a/0", "StartContainer a", "CreateContainer b/0", "StartContainer b", "CreateContainer c/0",
			"StartContainer c"}
		if diff := cmp.Diff(want, fake.called("CreateContainer", "StartContainer")); diff != "" {
			t.Error(diff)
		}
		wantConditions := map[string]string{"PodReadyToStartContainers": "True", "Initialized": "True", "Ready": "True",
			"ContainersReady": "True", "PodScheduled": "True"}
		if diff := cmp.Diff(wantConditions, conditions(status)); diff != "" {
			t.Error(diff)
		}
		if status.PodIP != "10.0.2.15" || status.Phase != corev1.PodRunning || status.QOSClass != corev1.PodQOSBestEffort {
			t.Errorf("ip %s, phase %s, qos %s", status.PodIP, status.Phase, status.QOSClass)
		}
		if id := status.ContainerStatuses[0].ContainerID; !strings.HasPrefix(id, "bulkhead://c") {
			t.Errorf("container id %s", id)
		}
	})
}

func TestStop(t *testing.T) {
	tests := []struct {
		name  string
		life  life
		grace time.Duration // negative: the pod's 30 s
		takes time.Duration
		code  int
		calls []string
	}{
		{name: "obeys TERM", life: life{term: 2 * time.Second}, grace: -1, takes: 2 * time.Second, code: 143,
			calls: []string{"StopContainer main/30"}},
		{name: "ends well", life: life{term: time.Second, termCode: 0}, grace: -1, takes: time.Second, code: 143,
			calls: []string{"StopContainer main/30"}},
		{name: "deaf", life: life{deaf: true}, grace: -1, takes: 30 * time.Second, code: 137, calls: []string{"StopContainer main/30"}},
		{name: "grace given", life: life{deaf: true}, grace: 5 * time.Second, takes: 5 * time.Second, code: 137,
			calls: []string{"StopContainer main/5"}},
		{name: "kill", life: life{term: time.Hour}, code: 137, calls: []string{"StopContainer main/0"}},
		{name: "part of a second", life: life{deaf: true}, grace: 1500 * time.Millisecond, takes: 2 * time.Second, code: 137,
			calls: []string{"StopContainer main/2"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.scripts["main"] = []life{test.life}
				s := supervise(t, fake, testpod.New("Always", "main"))
				begin := time.Now()
				if err := s.Stop(t.Context(), test.grace); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin).Round(time.Millisecond); took != test.takes {
					t.Errorf("took %v, want %v", took, test.takes)
				}
				if err := s.end(); err != nil {
					t.Error(err)
				}
				if code, _ := s.ExitCode(); code != test.code || s.Status().Phase != corev1.PodFailed {
					t.Errorf("exit code %d, phase %s", code, s.Status().Phase)
				}
				if diff := cmp.Diff(test.calls, fake.called("StopContainer")); diff != "" {
					t.Error(diff)
				}
				if err := s.Stop(t.Context(), 0); err != nil {
					t.Errorf("a stop after the end: %v", err)
				}
			})
		})
	}
}

// TestStopDuringTheStart: no container of an ended pod still waits for a start that was about to come.
func TestStopDuringTheStart(t *testing.T) {
	for _, test := range []struct {
		name, slow string
		want       []string
	}{
		{name: "a container before its turn", slow: "i",
			want: []string{"terminated ContainerStatusUnknown", "waiting PodInitializing", "waiting PodInitializing"}},
		{name: "the first container", slow: "a",
			want: []string{"terminated Completed", "terminated ContainerStatusUnknown", "terminated ContainerStatusUnknown"}},
		{name: "the last container", slow: "b", want: []string{"terminated Completed", "terminated Error", "terminated ContainerStatusUnknown"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.scripts["i"] = []life{{lasts: time.Second}}
				pod := withInits(testpod.New("Always", "a", "b"), "i")
				for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
					for i := range list {
						if list[i].Name == test.slow {
							list[i].Image = "slow:1"
						}
					}
				}
				fake.hold["slow:1"] = make(chan struct{})
				s := supervise(t, fake, pod)
				s.after(time.Minute)
				if err := s.Stop(t.Context(), -1); err != nil {
					t.Fatal(err)
				}
				close(fake.hold["slow:1"])
				if err := s.end(); err != nil {
					t.Fatal(err)
				}
				status := s.Status()
				var got []string
				for _, one := range append(status.InitContainerStatuses, status.ContainerStatuses...) {
					got = append(got, state(one))
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Error(diff)
				}
				if status.Phase != corev1.PodFailed {
					t.Errorf("phase %s", status.Phase)
				}
			})
		})
	}
}

func TestKillAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["main"] = []life{{deaf: true}}
		s := supervise(t, fake, testpod.New("Always", "main"))
		begin := time.Now()
		stopped := make(chan error, 1)
		go func() { stopped <- s.Stop(t.Context(), -1) }()
		time.Sleep(3 * time.Second)
		if err := s.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// TestSilentVersion: a runtime that does not return its version delays the pod by the deadline of one call.
func TestSilentVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.silent = true
		s := supervise(t, fake, testpod.New("Always", "main"))
		if got := s.after(observeDeadline + time.Second); got.Phase != corev1.PodRunning {
			t.Errorf("the pod is %s", got.Phase)
		}
		if err := s.Stop(t.Context(), 0); err != nil {
			t.Error(err)
		}
		if err := s.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestStopGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["main"] = []life{{deaf: true}}
		s := supervise(t, fake, testpod.New("Always", "main"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Stop(ctx, -1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if err := s.end(); err != nil { // the request remains in force
			t.Error(err)
		}
	})
}

func TestStopWhileTheSandboxIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.hold["RunPodSandbox"] = make(chan struct{})
		s := supervise(t, fake, testpod.New("Always", "main"))
		stopped := make(chan error, 1)
		go func() { stopped <- s.Stop(t.Context(), 0) }()
		s.after(time.Second)
		close(fake.hold["RunPodSandbox"])
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
		if calls := fake.called("CreateContainer", "StopPodSandbox"); !cmp.Equal(calls, []string{"StopPodSandbox s1"}) {
			t.Errorf("calls %v", calls)
		}
	})
}

// TestStopGivesUpTheSandbox: a stop cancels the creation of a sandbox, for example while a template is built, and no
// sandbox follows.
func TestStopGivesUpTheSandbox(t *testing.T) {
	for name, more := range map[string]func(*Options){"detached": func(*Options) {}, "failing fast": func(o *Options) { o.FailFast = true }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.template = make(chan struct{})
				s := supervise(t, fake, testpod.New("Always", "main"), more)
				s.after(time.Second)
				if err := s.Stop(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
				if err := s.end(); err != nil {
					t.Error(err)
				}
				if calls := fake.called("RunPodSandbox", "CreateContainer", "StopPodSandbox"); !cmp.Equal(calls, []string{"RunPodSandbox 0"}) {
					t.Errorf("calls %v", calls)
				}
			})
		})
	}
}

// TestPodHasNotEndedWhileItsVMRuns: an end is reported only when the VM has stopped.
func TestPodHasNotEndedWhileItsVMRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["main"] = []life{{lasts: time.Second}}
		busy := errors.New("device busy")
		fake.errors["StopPodSandbox"] = []error{busy, busy, busy}
		s := supervise(t, fake, testpod.New("Never", "main"))
		if status := s.after(3 * time.Second); status.Phase != corev1.PodRunning {
			t.Errorf("phase %s while the sandbox cannot be stopped", status.Phase)
		}
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		if calls := fake.called("StopPodSandbox"); len(calls) != 4 {
			t.Errorf("calls %v", calls)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	fake := newFake()
	for name, change := range map[string]func(*Options){
		"no pod":              func(o *Options) { o.Pod = nil },
		"no runtime":          func(o *Options) { o.Runtime = nil },
		"no uid":              func(o *Options) { o.Pod.UID = "" },
		"no containers":       func(o *Options) { o.Pod.Spec.Containers = nil },
		"internal annotation": func(o *Options) { o.Pod.Annotations = map[string]string{"io.bulkhead.internal/accel": "tcg"} },
	} {
		options := Options{Options: config.Options{Pod: testpod.New("Never", "main")}, Runtime: fake, Images: fake}
		change(&options)
		if _, err := New(options); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestClockIsSet: changes of the clock do not change the time to a pod's deadline, also if an earlier process noted its
// start. A note from the future counts from now.
func TestClockIsSet(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		began := beganAt(now.Add(-40*time.Second).UTC().Round(0), now)
		if left := began.Add(time.Minute).Sub(testclock.Set(now, by)); left != 20*time.Second {
			t.Errorf("set by %v: %v left", by, left)
		}
		c := &container{Newest: &instance.Instance{Status: &runtimeapi.ContainerStatus{
			Id: "a", State: runtimeapi.ContainerState_CONTAINER_EXITED, FinishedAt: now.Add(-time.Second).UnixNano(),
		}}}
		c.Sight(now)
		c.Sight(testclock.Set(now, by))
		if at := c.EndedAt(); now.Sub(at) != time.Second {
			t.Errorf("set by %v: ended %v ago", by, now.Sub(at))
		}
	}
	if began := beganAt(now.Add(time.Hour), now); !began.Equal(now) {
		t.Errorf("noted in the future: began %v ago", now.Sub(began))
	}
}
