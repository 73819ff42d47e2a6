package pod

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
)

// execProbe returns a probe with a period of a second and a command named name.
func execProbe(name string, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:   corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{name}}},
		TimeoutSeconds: 1, PeriodSeconds: 1, SuccessThreshold: 1, FailureThreshold: failures,
	}
}

// exited is the end of a command, as a runtime reports it.
type exited int

func (e exited) Error() string   { return "exit" }
func (e exited) Exited() bool    { return true }
func (e exited) ExitStatus() int { return int(e) }

// answer makes probes' commands end as the test decides by their names. It returns the function for the decisions.
func answer(fake *fakeCRI, ends map[string]bool) func(name string, good bool) {
	fake.exec = func(_ string, cmd []string) ([]byte, error) {
		fake.mu.Lock()
		defer fake.mu.Unlock()
		if ends[cmd[0]] {
			return nil, nil
		}
		return []byte("not well: 0123456789abcdef0123456789abcdef\n"), exited(1)
	}
	return func(name string, good bool) {
		fake.mu.Lock()
		defer fake.mu.Unlock()
		ends[name] = good
	}
}

// healthOf returns a container's state in short.
func healthOf(c corev1.ContainerStatus) string {
	out := state(c)
	if c.Started != nil && *c.Started {
		out += " started"
	}
	if c.Ready {
		out += " ready"
	}
	return out
}

func (s *supervised) messages(reason string) []string {
	var out []string
	for _, e := range s.events {
		if e.Reason == reason {
			out = append(out, e.Container+": "+e.Message)
		}
	}
	return out
}

// TestProbesOfAPodThatEnds: it is not killed for its liveness, and its readiness probes continue.
func TestProbesOfAPodThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		say := answer(fake, map[string]bool{"ready": true, "alive": true})
		fake.scripts["main"] = []life{{term: 20 * time.Second}}
		pod := testpod.New("Always", "main")
		pod.Spec.Containers[0].ReadinessProbe, pod.Spec.Containers[0].LivenessProbe = execProbe("ready", 1), execProbe("alive", 1)
		s := supervise(t, fake, pod)
		s.after(5 * time.Second)
		stopped := make(chan error, 1)
		go func() { stopped <- s.Stop(t.Context(), -1) }()
		say("alive", false)
		if got := healthOf(s.after(5 * time.Second).ContainerStatuses[0]); got != "running started ready" {
			t.Errorf("main is %s", got)
		}
		say("ready", false)
		if got := healthOf(s.after(5 * time.Second).ContainerStatuses[0]); got != "running started" {
			t.Errorf("main is %s", got)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"StopContainer main/30"}, fake.called("StopContainer")); diff != "" {
			t.Error(diff)
		}
		if got := s.messages("Unhealthy"); len(got) == 0 || strings.Contains(strings.Join(got, ""), "Liveness") {
			t.Errorf("events %q", got)
		}
	})
}

// TestAPausedPodFailsNoProbe, whatever it answers.
func TestAPausedPodFailsNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		say := answer(fake, map[string]bool{"ready": true, "alive": true})
		pod := testpod.New("Always", "main")
		pod.Spec.Containers[0].ReadinessProbe, pod.Spec.Containers[0].LivenessProbe = execProbe("ready", 1), execProbe("alive", 1)
		var paused bool
		s := supervise(t, fake, pod, func(o *Options) {
			o.Pauses = func(sandbox string) (uint64, bool) {
				fake.mu.Lock()
				defer fake.mu.Unlock()
				return 0, paused && strings.HasPrefix(sandbox, "s")
			}
		})
		s.after(5 * time.Second)
		fake.mu.Lock()
		paused = true
		fake.mu.Unlock()
		say("ready", false)
		say("alive", false)
		if got := s.after(time.Hour).ContainerStatuses[0]; healthOf(got) != "running started ready" || got.RestartCount != 0 {
			t.Errorf("%s, restarts %d", healthOf(got), got.RestartCount)
		}
	})
}
