package plan

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// wanted requests a stop with that grace.
func wanted(grace time.Duration) func(*State) { return func(s *State) { s.Wanted = &grace } }

// stopping is a stop that is being carried out.
func stopping(grace time.Duration, then ...func(*State)) func(*State) {
	return func(s *State) {
		s.Stopping = &grace
		for _, change := range then {
			change(s)
		}
	}
}

func stopped(s *State) { s.Stopped = true }

// TestStop: a stop first gives up the steps of the start, then stops the containers, then the sandbox.
func TestStop(t *testing.T) {
	check(t, []row{
		{name: "wanted", words: "run", change: wanted(5 * time.Second), want: "stop 5s"},
		{name: "nothing else happens", words: "end:1 -,pull", change: wanted(0), want: "stop 0s"},
		{name: "before the sandbox", sandbox: "none", words: "-", change: wanted(0), want: "stop 0s"},
		{name: "during a start", words: "-", want: "give up",
			change: func(s *State) {
				wanted(0)(s)
				s.Starting = &Starting{Container: s.Containers[0], Sandbox: "vm2"}
			}},
		{name: "during a call about the sandbox", sandbox: "none", words: "-", want: "give up",
			change: func(s *State) {
				wanted(0)(s)
				s.Busy = true
			}},
		{name: "during a write", words: "-", want: "give up",
			change: func(s *State) {
				wanted(0)(s)
				s.Files.Writing = true
			}},
		{name: "carried out", words: "run", change: stopping(5*time.Second, wanted(5*time.Second)), want: ""},
		{name: "shorter", words: "run", change: stopping(5*time.Second, wanted(time.Second)), want: "stop 1s"},
		{name: "longer", words: "run", change: stopping(5*time.Second, wanted(time.Minute)), want: ""},
		{name: "stopped", words: "end:0", change: stopping(5*time.Second, stopped), want: "end"},
		{name: "stopped, and longer", words: "end:0", change: stopping(5*time.Second, stopped, wanted(time.Minute)), want: "end"},
		{name: "stopped without a sandbox", sandbox: "none", words: "-", change: stopping(0, stopped), want: "end"},
		{name: "ended", words: "end:0", change: stopping(0, stopped, func(s *State) { s.Ended = true }), want: ""},
		{name: "failed fast", words: "run -", change: func(s *State) { s.Fatal = errors.New("no image") }, want: "stop 30s"},
		{name: "never its turn", sandbox: "none", words: "-", want: "stop 30s",
			change: func(s *State) { s.Turn = Turn{Awaited: true, Never: true} }},
	})
}

// TestTurn: a pod that waits for its turn does nothing else.
func TestTurn(t *testing.T) {
	awaited := func(s *State) { s.Turn.Awaited = true }
	check(t, []row{
		{name: "awaited", sandbox: "none", words: "-,pull", change: awaited, want: "ask"},
		{name: "wanted to stop", sandbox: "none", words: "-", change: func(s *State) { awaited(s); wanted(0)(s) }, want: "stop 0s"},
		{name: "with a deadline", sandbox: "none", words: "-", want: "wake 1m0s; ask",
			change: func(s *State) { awaited(s); s.Deadline = now.Add(time.Minute) }},
		{name: "past its deadline", sandbox: "none", words: "-", want: "expire; stop 30s",
			change: func(s *State) { awaited(s); s.Deadline = now }},
		{name: "the active deadline does not count", sandbox: "none", words: "-", want: "ask",
			change: func(s *State) { awaited(s); s.Pod.Spec.ActiveDeadlineSeconds = new(int64(1)) }},
	})
}

// TestDeadline: a pod past its deadline ends, also if it has ended too late.
func TestDeadline(t *testing.T) {
	active := func(seconds int64) func(*State) {
		return func(s *State) { s.Pod.Spec.ActiveDeadlineSeconds = &seconds } // it began a minute ago
	}
	check(t, []row{
		{name: "not yet", words: "run", change: active(90), want: "wake 30s"},
		{name: "past", words: "run", change: active(60), want: "expire; stop 30s"},
		{name: "the earlier of two", words: "run", want: "wake 10s",
			change: func(s *State) { active(90)(s); s.Deadline = now.Add(10 * time.Second) }},
		{name: "expired before", words: "run", want: "stop 30s", change: func(s *State) { active(60)(s); s.Expired = true }},
		{name: "stopping", words: "run", change: stopping(time.Second, active(60)), want: ""},
		{name: "ended in time", policy: "Never", words: "end:0@5", change: active(59), want: "stop 30s"},
		{name: "ended too late", policy: "Never", words: "end:0@5", change: active(50), want: "expire; stop 30s"},
	})
}

// TestVM: a dead VM is stopped once. Then a new one is made, unless the pod is over.
func TestVM(t *testing.T) {
	sandboxTry := func(ago time.Duration) func(*State) {
		return func(s *State) { s.SandboxTry.Fail("", "", now.Add(-ago)) }
	}
	claims := func(c Claims) func(*State) { return func(s *State) { s.Claims = c } }
	check(t, []row{
		{name: "none", sandbox: "none", words: "-", want: "make sandbox"},
		{name: "being made", sandbox: "none", words: "-", change: func(s *State) { s.Busy = true }, want: ""},
		{name: "failed", sandbox: "none", words: "-", change: sandboxTry(3 * time.Second), want: "wake 7s"},
		{name: "failed for long enough", sandbox: "none", words: "-", change: sandboxTry(10 * time.Second), want: "make sandbox"},
		{name: "after its claims", sandbox: "none", words: "-", change: claims(Claims{}), want: "claim"},
		{name: "claims failed", sandbox: "none", words: "-", change: claims(Claims{Retry: now.Add(time.Second)}), want: "wake 1s"},
		{name: "claims are mounted", sandbox: "none", words: "-", change: claims(Claims{Mounted: true}), want: "make sandbox"},
		{name: "dead", sandbox: "dead", words: "run", want: "stop dead"},
		{name: "dead, being stopped", sandbox: "dead", words: "run", change: func(s *State) { s.Busy = true }, want: ""},
		{name: "dead during a start", sandbox: "dead", words: "run -", want: "give up",
			change: func(s *State) { s.Starting = &Starting{Container: s.Containers[1], Sandbox: "vm2"} }},
		{name: "replaced during a start", words: "run -", want: "give up",
			change: func(s *State) { s.Starting = &Starting{Container: s.Containers[1], Sandbox: "vm1"} }},
		{name: "stopped", sandbox: "stopped", words: "end:137", want: "make sandbox"},
		{name: "stopped, and a container is unknown", sandbox: "stopped", words: "run", want: "make sandbox"},
		{name: "stopped, never restarted", sandbox: "stopped", policy: "Never", words: "end:137 -", want: "stop 30s"},
		{name: "a new one", words: "old:137 lost", want: "start c0"},
		{name: "a new one, on failure", policy: "OnFailure", words: "old:0 lost", want: "start c1"},
	})
}

// TestProbes: a container that fails its startup or liveness probe is stopped.
func TestProbes(t *testing.T) {
	failed := func(kind probe.Kind, grace *int64) func(*State) {
		return func(s *State) {
			c := s.Containers[0]
			one := &corev1.Probe{TerminationGracePeriodSeconds: grace}
			c.Spec.StartupProbe, c.Spec.LivenessProbe = &corev1.Probe{}, &corev1.Probe{}
			if c.Verdict.Failed = kind; kind == probe.Startup {
				c.Spec.StartupProbe = one
			} else {
				c.Spec.LivenessProbe = one
			}
		}
	}
	check(t, []row{
		{name: "liveness", words: "run", change: failed(probe.Liveness, nil), want: "kill c0 30s"},
		{name: "liveness with a grace", words: "run", change: failed(probe.Liveness, new(int64(3))), want: "kill c0 3s"},
		{name: "startup with a grace", words: "run", change: failed(probe.Startup, new(int64(4))), want: "kill c0 4s"},
		{name: "others start", words: "run -", change: failed(probe.Liveness, nil), want: "kill c0 30s; start c1"},
		{name: "being stopped for it", words: "run,kill", want: "",
			change: func(s *State) { failed(probe.Liveness, nil)(s); s.Containers[0].Failing = "c0" }},
		{name: "being stopped for another reason", words: "run,kill", change: failed(probe.Liveness, nil), want: "kill c0 30s"},
		{name: "the pod ends", words: "run", change: stopping(time.Second, failed(probe.Liveness, nil)), want: ""},
		{name: "has ended", policy: "Never", words: "end:1 run", change: failed(probe.Liveness, nil), want: ""},
	})
	for policy, want := range map[corev1.RestartPolicy]string{
		"Always": "Container c0 failed liveness probe, will be restarted", "Never": "Container c0 failed liveness probe",
	} {
		s := newState(policy, "up", "run")
		failed(probe.Liveness, nil)(s)
		if got := Plan(s, now)[0].Message; got != want {
			t.Errorf("%s: %s, want %s", policy, got, want)
		}
	}
}

// TestReplace: a container with an outdated image is restarted.
func TestReplace(t *testing.T) {
	old := func(s *State) {
		s.Containers[0].Newest.Status.Annotations = map[string]string{"io.kubernetes.container.hash": "image-other"}
	}
	check(t, []row{
		{name: "runs", words: "run", change: old, want: "replace c0"},
		{name: "being stopped", words: "run,kill", change: old, want: ""},
		{name: "being stopped by this plan", words: "run", want: "kill c0 30s",
			change: func(s *State) {
				old(s)
				s.Containers[0].Spec.LivenessProbe = &corev1.Probe{}
				s.Containers[0].Verdict.Failed = probe.Liveness
			}},
		{name: "has ended", words: "end:0", change: old, want: "start c0"},
	})
}

// TestResize: running containers get the resources of their specification.
func TestResize(t *testing.T) {
	resized := func(then ...func(*State)) func(*State) {
		return func(s *State) {
			for _, c := range s.Containers {
				c.Newest.Status.Resources = &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 20}}
			}
			for _, change := range then {
				change(s)
			}
		}
	}
	check(t, []row{
		{name: "differs", words: "run run", change: resized(), want: "resize 2, 0 restarts"},
		{name: "with a restart", words: "run run", want: "resize 1, 1 restarts",
			change: resized(func(s *State) {
				s.Containers[0].Spec.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "memory", RestartPolicy: "RestartContainer"}}
			})},
		{name: "being resized", words: "run", change: resized(func(s *State) { s.Resize.Busy = true }), want: ""},
		{name: "refused", words: "run", change: resized(func(s *State) { s.Resize.Reverted = true }), want: ""},
		{name: "failed", words: "run", change: resized(func(s *State) { s.Resize.Retry = now.Add(time.Second) }), want: "wake 1s"},
		{name: "being stopped", words: "run,kill", change: resized(), want: ""},
		{name: "complete", words: "run", change: func(s *State) { s.Pod.Generation = 2 }, want: "resize end"},
		{name: "complete before", words: "run", change: func(s *State) { s.Pod.Generation, s.Resize.Actuated = 2, 2 }, want: ""},
		{name: "a container restarts for it", words: "run run,kill", want: "",
			change: func(s *State) { s.Pod.Generation, s.Containers[1].Replaced = 2, "c1" }},
	})
}

// TestOrder: sidecars end after the regular containers, the last one first.
func TestOrder(t *testing.T) {
	for words, want := range map[string]string{
		"run run":               "c0 c1",
		"s=run run":             "c1 c0(c1)",
		"s=run s=run run run":   "c2 c3 c1(c2 c3) c0(c2 c3 c1)",
		"s=run i=run -":         "c1 c0()",
		"s=run end:0 run e=run": "c2 c3 c0(c2)",
		"end:0 -":               "",
	} {
		var out []string
		for _, v := range Order(newState("Always", "up", words)) {
			name := v.Spec.Name
			if v.Kind == podspec.Sidecar {
				var after []string
				for _, other := range v.After {
					after = append(after, other.Spec.Name)
				}
				name += "(" + strings.Join(after, " ") + ")"
			} else if len(v.After) > 0 {
				t.Errorf("%s: %s waits", words, name)
			}
			out = append(out, name)
		}
		if got := strings.Join(out, " "); got != want {
			t.Errorf("%s: %s, want %s", words, got, want)
		}
	}
}
