package pod

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
)

func TestLivenessAndStartupKill(t *testing.T) {
	with := func(p *corev1.Probe, grace int64) *corev1.Probe {
		p.TerminationGracePeriodSeconds = &grace
		return p
	}
	tests := []struct {
		name              string
		policy            corev1.RestartPolicy
		liveness, startup *corev1.Probe
		life              life
		calls             []string
		killing           string
		state             string // 3 s after the kill
		restarts          int32
		lastCode          int32
	}{
		{name: "liveness", policy: "Always", liveness: execProbe("bad", 3), life: life{term: time.Second},
			calls:   []string{"StopContainer main/30"},
			killing: "main: Container main failed liveness probe, will be restarted", state: "running started ready", restarts: 1, lastCode: 143},
		{name: "liveness, on failure, exit code 0", policy: "OnFailure", liveness: execProbe("bad", 3),
			life: life{term: time.Second, termCode: -1}, calls: []string{"StopContainer main/30"},
			killing: "main: Container main failed liveness probe, will be restarted", state: "running started ready", restarts: 1},
		{name: "liveness, never", policy: "Never", liveness: execProbe("bad", 3), life: life{term: time.Second},
			calls:   []string{"StopContainer main/30"},
			killing: "main: Container main failed liveness probe", state: "terminated Error"},
		{name: "liveness, its own grace", policy: "Always", liveness: with(execProbe("bad", 3), 2), life: life{deaf: true},
			calls:   []string{"StopContainer main/2"},
			killing: "main: Container main failed liveness probe, will be restarted", state: "running started ready", restarts: 1, lastCode: 137},
		{name: "startup", policy: "Always", startup: execProbe("bad", 3), life: life{term: time.Second}, calls: []string{"StopContainer main/30"},
			killing: "main: Container main failed startup probe, will be restarted", state: "running", restarts: 1, lastCode: 143},
		{name: "startup, its own grace", policy: "Always", liveness: with(execProbe("bad", 1), 60), startup: with(execProbe("bad", 3), 1),
			life: life{deaf: true}, calls: []string{"StopContainer main/1"},
			killing: "main: Container main failed startup probe, will be restarted", state: "running", restarts: 1, lastCode: 137},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				answer(fake, map[string]bool{})
				fake.scripts["main"] = []life{test.life}
				pod := testpod.New(test.policy, "main")
				pod.Spec.Containers[0].LivenessProbe, pod.Spec.Containers[0].StartupProbe = test.liveness, test.startup
				s := supervise(t, fake, pod)
				s.after(2 * time.Second)
				if calls := fake.called("StopContainer"); len(calls) > 0 {
					t.Errorf("killed before its time: %v", calls)
				}
				status := s.after(4 * time.Second)
				c := status.ContainerStatuses[0]
				if healthOf(c) != test.state || c.RestartCount != test.restarts {
					t.Errorf("%s, restarts %d", healthOf(c), c.RestartCount)
				}
				if last := c.LastTerminationState.Terminated; test.restarts > 0 && (last == nil || last.ExitCode != test.lastCode) {
					t.Errorf("ended with %+v", last)
				}
				if diff := cmp.Diff(test.calls, fake.called("StopContainer")[:1]); diff != "" {
					t.Error(diff)
				}
				if told := s.messages("Killing"); len(told) == 0 || told[0] != test.killing {
					t.Errorf("events %q", told)
				}
				if told := s.messages("Unhealthy"); len(told) < 3 {
					t.Errorf("events %q", told)
				}
			})
		})
	}
}

// TestKilledForItsLivenessBacksOff: restarts for failed probes back off like restarts for failures.
func TestKilledForItsLivenessBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		answer(fake, map[string]bool{})
		pod := testpod.New("Always", "main")
		pod.Spec.Containers[0].LivenessProbe = execProbe("bad", 1)
		s := supervise(t, fake, pod)
		status := s.after(3 * time.Second) // killed at 1 s and at 2 s
		if got := healthOf(status.ContainerStatuses[0]); got != "waiting CrashLoopBackOff" || status.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("%s, restarts %d", got, status.ContainerStatuses[0].RestartCount)
		}
	})
}

func TestStartupHoldsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		say := answer(fake, map[string]bool{"ready": true, "alive": false})
		pod := testpod.New("Always", "main")
		main := &pod.Spec.Containers[0]
		main.StartupProbe, main.ReadinessProbe, main.LivenessProbe = execProbe("up", 60), execProbe("ready", 1), execProbe("alive", 1)
		s := supervise(t, fake, pod)
		if got := healthOf(s.after(30 * time.Second).ContainerStatuses[0]); got != "running" {
			t.Errorf("main is %s", got)
		}
		say("alive", true)
		say("up", true)
		if got := healthOf(s.after(time.Second).ContainerStatuses[0]); got != "running started ready" {
			t.Errorf("main is %s", got)
		}
		say("up", false) // the startup probe no longer runs
		if got := s.after(time.Hour).ContainerStatuses[0]; healthOf(got) != "running started ready" || got.RestartCount != 0 {
			t.Errorf("main is %s, restarts %d", healthOf(got), got.RestartCount)
		}
	})
}

// TestASidecarStartsTheOthers: the containers after a sidecar wait for its startup probe.
func TestASidecarStartsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		say := answer(fake, map[string]bool{})
		pod := testpod.New("Always", "main")
		always := corev1.ContainerRestartPolicyAlways
		pod.Spec.InitContainers = []corev1.Container{{
			Name: "side", Image: "here:1", ImagePullPolicy: corev1.PullIfNotPresent, RestartPolicy: &always,
			StartupProbe: execProbe("up", 60), ReadinessProbe: execProbe("ready", 1),
		}}
		s := supervise(t, fake, pod)
		if status := s.after(10 * time.Second); len(fake.called("StartContainer")) != 1 ||
			healthOf(status.InitContainerStatuses[0]) != "running" {
			t.Errorf("started %v, the sidecar is %s", fake.called("StartContainer"), healthOf(status.InitContainerStatuses[0]))
		}
		say("up", true)
		status := s.after(time.Second)
		if diff := cmp.Diff([]string{"StartContainer side", "StartContainer main"}, fake.called("StartContainer")); diff != "" {
			t.Error(diff)
		}
		if got := conditions(status)["Ready"]; got != "False ContainersNotReady" {
			t.Errorf("Ready is %s while the sidecar is not", got)
		}
		say("ready", true)
		if got := conditions(s.after(time.Second))["Ready"]; got != "True" {
			t.Errorf("Ready is %s", got)
		}
	})
}
