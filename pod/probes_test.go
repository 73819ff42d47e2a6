package pod

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// execProbe is a probe of each second whose command is its name.
func execProbe(name string, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:   corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{name}}},
		TimeoutSeconds: 1, PeriodSeconds: 1, SuccessThreshold: 1, FailureThreshold: failures,
	}
}

// exited is the end of a command, as a runtime tells it.
type exited int

func (e exited) Error() string   { return "exit" }
func (e exited) Exited() bool    { return true }
func (e exited) ExitStatus() int { return int(e) }

// answer has probes' commands end by what the test says of their names; it
// returns what says so.
func answer(fake *fakeCRI, ends map[string]bool) func(name string, good bool) {
	fake.exec = func(_ string, cmd []string) ([]byte, error) {
		fake.mu.Lock()
		defer fake.mu.Unlock()
		if ends[cmd[0]] {
			return nil, nil
		}
		return []byte("not well\n"), exited(1)
	}
	return func(name string, good bool) {
		fake.mu.Lock()
		defer fake.mu.Unlock()
		ends[name] = good
	}
}

// health is a container's in short.
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

func (s *supervised) told(reason string) []string {
	var out []string
	for _, e := range s.events {
		if e.Reason == reason {
			out = append(out, e.Container+": "+e.Message)
		}
	}
	return out
}

func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		say := answer(fake, map[string]bool{})
		pod := onePod("Always", "main", "other")
		pod.Spec.Containers[0].ReadinessProbe = execProbe("ready", 2)
		s := supervise(t, fake, pod)
		status := s.after(10 * time.Second)
		if got := healthOf(status.ContainerStatuses[0]); got != "running started" {
			t.Errorf("main is %s", got)
		}
		if got := healthOf(status.ContainerStatuses[1]); got != "running started ready" {
			t.Errorf("other is %s", got)
		}
		want := map[string]string{"PodReadyToStartContainers": "True", "Initialized": "True", "Ready": "False ContainersNotReady", "ContainersReady": "False ContainersNotReady", "PodScheduled": "True"}
		if diff := cmp.Diff(want, conditions(status)); diff != "" {
			t.Error(diff)
		}
		say("ready", true)
		status = s.after(time.Second)
		if got := conditions(status)["Ready"]; got != "True" {
			t.Errorf("Ready is %s", got)
		}
		say("ready", false)
		if got := conditions(s.after(time.Second))["Ready"]; got != "True" {
			t.Errorf("Ready is %s after one failure", got)
		}
		if got := conditions(s.after(time.Second))["Ready"]; got != "False ContainersNotReady" {
			t.Errorf("Ready is %s after two failures", got)
		}
		if told := s.told("Unhealthy"); len(told) == 0 || told[0] != "main: Readiness probe failed: not well" {
			t.Errorf("told %q", told)
		}
		if len(s.told("Killing")) > 0 || len(fake.called("StopContainer")) > 0 {
			t.Error("a container that is not ready was killed")
		}
	})
}

// TestReadinessEndsWithTheContainer, and begins anew with the next one.
func TestReadinessEndsWithTheContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		answer(fake, map[string]bool{"ready": true})
		fake.scripts["main"] = []life{{lasts: 5 * time.Second, code: 1}, {lasts: 5 * time.Second, code: 1}, {}}
		pod := onePod("Always", "main")
		pod.Spec.Containers[0].ReadinessProbe = execProbe("ready", 1)
		pod.Spec.Containers[0].ReadinessProbe.InitialDelaySeconds = 3
		s := supervise(t, fake, pod)
		for _, step := range []struct {
			at   time.Duration
			want string
		}{
			{0, "running started"}, {3 * time.Second, "running started ready"},
			{5 * time.Second, "running started"}, {8 * time.Second, "running started ready"},
			{10 * time.Second, "waiting CrashLoopBackOff"}, {20 * time.Second, "running started"}, {23 * time.Second, "running started ready"},
		} {
			if got := healthOf(s.after(step.at - time.Since(s.Status().StartTime.Time)).ContainerStatuses[0]); got != step.want {
				t.Errorf("at %v: %s, want %s", step.at, got, step.want)
			}
		}
	})
}

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
		{"liveness", "Always", execProbe("bad", 3), nil, life{term: time.Second}, []string{"StopContainer main/30"},
			"main: Container main failed liveness probe, will be restarted", "running started ready", 1, 143},
		{"liveness, on failure, exit code 0", "OnFailure", execProbe("bad", 3), nil, life{term: time.Second, termCode: -1}, []string{"StopContainer main/30"},
			"main: Container main failed liveness probe, will be restarted", "running started ready", 1, 0},
		{"liveness, never", "Never", execProbe("bad", 3), nil, life{term: time.Second}, []string{"StopContainer main/30"},
			"main: Container main failed liveness probe", "terminated Error", 0, 0},
		{"liveness, its own grace", "Always", with(execProbe("bad", 3), 2), nil, life{deaf: true}, []string{"StopContainer main/2"},
			"main: Container main failed liveness probe, will be restarted", "running started ready", 1, 137},
		{"startup", "Always", nil, execProbe("bad", 3), life{term: time.Second}, []string{"StopContainer main/30"},
			"main: Container main failed startup probe, will be restarted", "running", 1, 143},
		{"startup, its own grace", "Always", with(execProbe("bad", 1), 60), with(execProbe("bad", 3), 1), life{deaf: true}, []string{"StopContainer main/1"},
			"main: Container main failed startup probe, will be restarted", "running", 1, 137},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				answer(fake, map[string]bool{})
				fake.scripts["main"] = []life{test.life}
				pod := onePod(test.policy, "main")
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
				if told := s.told("Killing"); len(told) == 0 || told[0] != test.killing {
					t.Errorf("told %q", told)
				}
				if told := s.told("Unhealthy"); len(told) < 3 {
					t.Errorf("told %q", told)
				}
			})
		})
	}
}

// TestKilledForItsLivenessBacksOff: what is restarted for its probes is restarted
// as what fails by itself.
func TestKilledForItsLivenessBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		answer(fake, map[string]bool{})
		pod := onePod("Always", "main")
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
		pod := onePod("Always", "main")
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
		say("up", false) // nobody asks any more
		if got := s.after(time.Hour).ContainerStatuses[0]; healthOf(got) != "running started ready" || got.RestartCount != 0 {
			t.Errorf("main is %s, restarts %d", healthOf(got), got.RestartCount)
		}
	})
}

// TestASidecarStartsTheOthers: the containers after a sidecar wait for its
// startup probe.
func TestASidecarStartsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		say := answer(fake, map[string]bool{})
		pod := onePod("Always", "main")
		always := corev1.ContainerRestartPolicyAlways
		pod.Spec.InitContainers = []corev1.Container{{
			Name: "side", Image: "here:1", ImagePullPolicy: corev1.PullIfNotPresent, RestartPolicy: &always,
			StartupProbe: execProbe("up", 60), ReadinessProbe: execProbe("ready", 1),
		}}
		s := supervise(t, fake, pod)
		if status := s.after(10 * time.Second); len(fake.called("StartContainer")) != 1 || healthOf(status.InitContainerStatuses[0]) != "running" {
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

// TestProbesOfAPodThatEnds: it is not killed for its liveness, and ready as long
// as it says so.
func TestProbesOfAPodThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		say := answer(fake, map[string]bool{"ready": true, "alive": true})
		fake.scripts["main"] = []life{{term: 20 * time.Second}}
		pod := onePod("Always", "main")
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
		if told := s.told("Unhealthy"); len(told) == 0 || strings.Contains(strings.Join(told, ""), "Liveness") {
			t.Errorf("told %q", told)
		}
	})
}

// TestTakenOverWithProbes: what was known under the last supervisor holds under
// the next, until a probe says otherwise.
func TestTakenOverWithProbes(t *testing.T) {
	for _, test := range []struct {
		name          string
		knows         bool
		atOnce, later string
	}{
		{"known", true, "running started ready", "running started ready"},
		{"not known", false, "running", "running"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				say := answer(fake, map[string]bool{"ready": true, "up": true})
				pod := onePod("Always", "main")
				pod.Spec.Containers[0].ReadinessProbe, pod.Spec.Containers[0].StartupProbe = execProbe("ready", 1), execProbe("up", 600)
				first := supervise(t, fake, pod)
				first.after(5 * time.Second)
				known := first.Verdicts()
				first.cancel()
				first.end()
				say("up", false)
				second := supervise(t, fake, pod, func(o *Options) {
					if test.knows {
						o.Last = known
					}
				})
				if got := healthOf(second.Status().ContainerStatuses[0]); got != test.atOnce {
					t.Errorf("at once %s", got)
				}
				if got := healthOf(second.after(time.Minute).ContainerStatuses[0]); got != test.later {
					t.Errorf("later %s", got)
				}
				if calls := fake.called("StopContainer", "StopPodSandbox"); len(calls) > 0 {
					t.Errorf("the pod was touched: %v", calls)
				}
			})
		})
	}
}

// TestTakenOverLongBeforeItStarted: a container that was known not to have
// started has not by the time that nobody asked it, and what it has to start is
// counted anew.
func TestTakenOverLongBeforeItStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		answer(fake, map[string]bool{})
		pod := onePod("Always", "main")
		pod.Spec.Containers[0].StartupProbe = execProbe("up", 20)
		first := supervise(t, fake, pod)
		first.after(5 * time.Second)
		known := first.Verdicts()
		first.cancel()
		first.end()
		time.Sleep(time.Hour)
		second := supervise(t, fake, pod, func(o *Options) { o.Last = known })
		if got := healthOf(second.after(15 * time.Second).ContainerStatuses[0]); got != "running" {
			t.Errorf("it is %s", got)
		}
		if calls := fake.called("StopContainer"); len(calls) > 0 {
			t.Errorf("ended before its time: %v", calls)
		}
		second.after(10 * time.Second)
		if diff := cmp.Diff([]string{"StopContainer main/30"}, fake.called("StopContainer")); diff != "" {
			t.Error(diff)
		}
	})
}

// TestTakenOverWhileItIsEnded: who is ended for its liveness or for a resize, and
// obeys with success, is started anew by the next supervisor too.
func TestTakenOverWhileItIsEnded(t *testing.T) {
	for _, cause := range []string{"liveness", "resize"} {
		t.Run(cause, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.scripts["main"] = []life{{term: 5 * time.Second, termCode: -1}, {}}
				say := answer(fake, map[string]bool{"alive": true})
				pod := onePod("OnFailure", "main")
				main := &pod.Spec.Containers[0]
				main.Resources = limited("cpu=1", "memory=64Mi")
				if cause == "liveness" {
					main.LivenessProbe = execProbe("alive", 1)
				} else {
					main.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
				}
				if !Remembers(pod) {
					t.Error("nothing is remembered of the pod")
				}
				first := supervise(t, fake, pod)
				first.after(30 * time.Second)
				id, _ := first.Container("main")
				if first.Verdicts()[id].Ending {
					t.Error("it is being ended before there is a cause")
				}
				say("alive", false)
				if cause == "resize" {
					if _, err := first.Resize("main", limited("cpu=2", "memory=64Mi")); err != nil {
						t.Fatal(err)
					}
				}
				first.after(3 * time.Second)
				known, spec := first.Verdicts(), first.Spec()
				first.cancel()
				first.end()
				time.Sleep(time.Hour)
				say("alive", true)
				second := supervise(t, fake, spec, func(o *Options) { o.Last = known })
				if got := state(second.after(time.Minute).ContainerStatuses[0]); got != "running" || len(fake.called("StartContainer")) != 2 {
					t.Errorf("it is %s, after %v", got, fake.called("StartContainer"))
				}
				if id, _ := second.Container("main"); second.Verdicts()[id].Ending {
					t.Error("what was started anew is being ended")
				}
			})
		})
	}
}

// TestAPausedPodFailsNoProbe, whatever it answers.
func TestAPausedPodFailsNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		say := answer(fake, map[string]bool{"ready": true, "alive": true})
		pod := onePod("Always", "main")
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

// TestDialer: what the engine says becomes what a probe needs to know.
func TestDialer(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	for _, test := range []struct {
		name  string
		err   error
		text  string
		asked bool
	}{
		{"refused", &net.OpError{Op: "x", Err: syscall.ECONNREFUSED}, "dial tcp 10.0.2.15:80: connect: connection refused", true},
		{"timeout", context.DeadlineExceeded, "deadline exceeded", true},
		{"the guest says no", errors.New("no route"), "no route", true},
		{"no shim", status.Error(codes.Unavailable, "the shim is gone"), "the shim is gone", false},
		{"not running", status.Error(codes.FailedPrecondition, "stopped"), "stopped", false},
		{"no pod", status.Error(codes.NotFound, "no pod"), "no pod", false},
	} {
		dial := dialer(&Options{Dial: func(context.Context, string, int) (net.Conn, error) { return nil, test.err }}, "s1", "10.0.2.15")
		_, err := dial(t.Context(), 80)
		if err == nil || !strings.Contains(err.Error(), test.text) || errors.Is(err, probe.ErrNotAsked) == test.asked {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	dial := dialer(&Options{Dial: func(_ context.Context, sandbox string, port int) (net.Conn, error) {
		if sandbox != "s1" || port != 80 {
			t.Errorf("dialed port %d of %s", port, sandbox)
		}
		return near, nil
	}}, "s1", "10.0.2.15")
	if conn, err := dial(t.Context(), 80); conn != near || err != nil {
		t.Errorf("%v, %v", conn, err)
	}
	if _, err := dialer(&Options{}, "s1", "127.0.0.1")(t.Context(), 0); err == nil {
		t.Error("the pod's address was not dialed")
	}
}

// TestDialedProbe: probes of ports go by Options.Dial.
func TestDialedProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		pod := onePod("Always", "main")
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}
		pod.Spec.Containers[0].ReadinessProbe = execProbe("", 1)
		pod.Spec.Containers[0].ReadinessProbe.ProbeHandler = corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("web")}}
		open := false
		s := supervise(t, fake, pod, func(o *Options) {
			o.Dial = func(_ context.Context, sandbox string, port int) (net.Conn, error) {
				fake.mu.Lock()
				defer fake.mu.Unlock()
				if !open || port != 8080 || !strings.HasPrefix(sandbox, "s") {
					return nil, syscall.ECONNREFUSED
				}
				near, far := net.Pipe()
				far.Close()
				return near, nil
			}
		})
		if got := healthOf(s.after(2 * time.Second).ContainerStatuses[0]); got != "running started" {
			t.Errorf("%s", got)
		}
		if told := s.told("Unhealthy"); len(told) == 0 || told[0] != "main: Readiness probe failed: dial tcp 10.0.2.15:8080: connect: connection refused" {
			t.Errorf("told %q", told)
		}
		fake.mu.Lock()
		open = true
		fake.mu.Unlock()
		if got := healthOf(s.after(time.Second).ContainerStatuses[0]); got != "running started ready" {
			t.Errorf("%s", got)
		}
	})
}

func TestStaticCommand(t *testing.T) {
	t.Parallel()
	c := &corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: "one"}, {Name: "B", Value: "$(A)"}, {Name: "C", ValueFrom: &corev1.EnvVarSource{}}}}
	got := staticCommand(c, []string{"$(A)", "$(B)", "$(C)", "$(D)", "$$(A)", "x$(A)y"})
	if diff := cmp.Diff([]string{"one", "$(A)", "", "$(D)", "$(A)", "xoney"}, got); diff != "" {
		t.Error(diff)
	}
}
