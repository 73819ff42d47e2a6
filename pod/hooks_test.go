package pod

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/instance"
)

func execHook(command string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{command}}}
}

func sleepHook(seconds int64) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: seconds}}
}

// reasons returns the reasons of events that are warnings or of the kind.
func reasons(events []Event, kind string) string {
	var out []string
	for _, e := range events {
		if e.Warning || e.Reason == kind {
			out = append(out, e.Reason)
		}
	}
	return strings.Join(out, " ")
}

func TestPostStart(t *testing.T) {
	failed := errors.New("command ended with exit code 1")
	tests := []struct {
		name   string
		policy corev1.RestartPolicy
		hook   *corev1.LifecycleHandler
		how    fakeExec
		life   life
		after  time.Duration
		starts string
		state  string
		ready  bool
		events string
	}{
		{name: "runs", policy: "Always", hook: execHook("hook"), how: fakeExec{lasts: time.Minute}, after: 30 * time.Second, starts: "a",
			state: "running"},
		{name: "has run", policy: "Always", hook: execHook("hook"), how: fakeExec{lasts: time.Second}, after: 30 * time.Second,
			starts: "a b", state: "running", ready: true},
		{name: "sleeps", policy: "Always", hook: sleepHook(10), after: 9 * time.Second, starts: "a", state: "running"},
		{name: "has slept", policy: "Always", hook: sleepHook(10), after: 11 * time.Second, starts: "a b", state: "running", ready: true},
		{name: "fails, never", policy: "Never", hook: execHook("hook"), how: fakeExec{lasts: time.Second, err: failed},
			after: 2 * time.Second, starts: "a b", state: "terminated Error", events: "FailedPostStartHook Killing"},
		{name: "fails again and again", policy: "Always", hook: execHook("hook"), how: fakeExec{lasts: time.Second, err: failed},
			after: 5 * time.Second, starts: "a b a", state: "waiting CrashLoopBackOff",
			events: "FailedPostStartHook Killing FailedPostStartHook Killing BackOff"},
		{name: "the container ends before it", policy: "Never", hook: sleepHook(60), life: life{lasts: time.Second}, after: 2 * time.Second,
			starts: "a b", state: "terminated Completed"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.execs["hook"] = test.how
				fake.scripts["a"] = []life{test.life}
				pod := testpod.New(test.policy, "a", "b")
				pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: test.hook}
				s := supervise(t, fake, pod)
				status := s.after(test.after)
				if got := starts(fake); got != test.starts {
					t.Errorf("started %s, want %s", got, test.starts)
				}
				if got := status.ContainerStatuses[0]; state(got) != test.state || got.Ready != test.ready || *got.Started != test.ready {
					t.Errorf("%s, ready %v, started %v", state(got), got.Ready, *got.Started)
				}
				if got := reasons(s.events, "Killing"); got != test.events {
					t.Errorf("events %s, want %s", got, test.events)
				}
			})
		})
	}
}

// TestPostStartOfASidecar: a sidecar's hook delays the containers after it.
func TestPostStartOfASidecar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		pod := withInits(testpod.New("Always", "main"), "s+")
		pod.Spec.InitContainers[0].Lifecycle = &corev1.Lifecycle{PostStart: sleepHook(5)}
		s := supervise(t, fake, pod)
		if status := s.after(4 * time.Second); starts(fake) != "s" || *status.InitContainerStatuses[0].Started ||
			status.Phase != corev1.PodPending {
			t.Errorf("started %s, phase %s", starts(fake), status.Phase)
		}
		if status := s.after(2 * time.Second); starts(fake) != "s main" || !*status.InitContainerStatuses[0].Started ||
			status.Phase != corev1.PodRunning {
			t.Errorf("started %s, phase %s", starts(fake), status.Phase)
		}
	})
}

func TestPreStop(t *testing.T) {
	failed := errors.New("command ended with exit code 1")
	tests := []struct {
		name  string
		hook  *corev1.LifecycleHandler
		how   fakeExec
		life  life
		grace time.Duration // negative: the pod's 30 s
		takes time.Duration
		calls []string
		warns string
	}{
		{name: "first the hook", hook: execHook("hook"), how: fakeExec{lasts: 5 * time.Second}, grace: -1, takes: 5 * time.Second,
			calls: []string{"ExecSync main hook", "StopContainer main/25"}},
		{name: "first a sleep", hook: sleepHook(5), grace: -1, takes: 5 * time.Second, calls: []string{"StopContainer main/25"}},
		{name: "then the rest of the grace", hook: sleepHook(10), life: life{deaf: true}, grace: -1, takes: 30 * time.Second,
			calls: []string{"StopContainer main/20"}},
		{name: "a hook that fails", hook: execHook("hook"), how: fakeExec{err: failed}, grace: -1,
			calls: []string{"ExecSync main hook", "StopContainer main/30"}, warns: "FailedPreStopHook"},
		{name: "a hook that uses all up", hook: execHook("hook"), how: fakeExec{lasts: time.Hour}, grace: -1, takes: 30 * time.Second,
			calls: []string{"ExecSync main hook", "StopContainer main/2"}, warns: "FailedPreStopHook"},
		{name: "and a deaf container", hook: execHook("hook"), how: fakeExec{lasts: time.Hour}, life: life{deaf: true}, grace: -1,
			takes: 32 * time.Second, calls: []string{"ExecSync main hook", "StopContainer main/2"}, warns: "FailedPreStopHook"},
		{name: "a hook that leaves a second", hook: sleepHook(29), life: life{deaf: true}, grace: -1, takes: 31 * time.Second,
			calls: []string{"StopContainer main/2"}},
		{name: "with a grace of its own", hook: execHook("hook"), how: fakeExec{lasts: 2 * time.Second}, life: life{deaf: true},
			grace: 10 * time.Second, takes: 10 * time.Second, calls: []string{"ExecSync main hook", "StopContainer main/8"}},
		{name: "no grace, no hook", hook: execHook("hook"), how: fakeExec{lasts: 2 * time.Second}, calls: []string{"StopContainer main/0"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.execs["hook"] = test.how
				fake.scripts["main"] = []life{test.life}
				pod := testpod.New("Always", "main")
				pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: test.hook}
				s := supervise(t, fake, pod)
				begin := time.Now()
				if err := s.Stop(t.Context(), test.grace); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin).Round(time.Millisecond); took != test.takes {
					t.Errorf("took %v, want %v", took, test.takes)
				}
				if diff := cmp.Diff(test.calls, fake.called("StopContainer", "ExecSync")); diff != "" {
					t.Error(diff)
				}
				if got := reasons(s.events, ""); got != test.warns {
					t.Errorf("warnings %s, want %s", got, test.warns)
				}
			})
		})
	}
}

func TestNoPreStopOfWhatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["main"] = []life{{lasts: time.Second}}
		pod := testpod.New("Never", "main", "other")
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: execHook("hook")}
		s := supervise(t, fake, pod)
		s.after(2 * time.Second)
		if err := s.Stop(t.Context(), -1); err != nil {
			t.Fatal(err)
		}
		if got := fake.called("ExecSync"); len(got) > 0 {
			t.Errorf("calls %v", got)
		}
	})
}

// TestStopDuringPreStop: a request during a hook waits for it within its own grace, and does not start it again. A
// request without grace does not wait.
func TestStopDuringPreStop(t *testing.T) {
	tests := []struct {
		name  string
		lasts time.Duration // the hook
		grace time.Duration // of the second request
		takes time.Duration
		calls []string
		warns string
	}{
		{name: "the hook ends", lasts: 10 * time.Second, grace: 20 * time.Second, takes: 10 * time.Second,
			calls: []string{"ExecSync main hook", "StopContainer main/13"}},
		{name: "the hook fails to", lasts: time.Hour, grace: 5 * time.Second, takes: 8 * time.Second,
			calls: []string{"ExecSync main hook", "StopContainer main/2"}, warns: "FailedPreStopHook"},
		{name: "no patience", lasts: time.Hour, takes: 3 * time.Second, calls: []string{"ExecSync main hook", "StopContainer main/0"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.execs["hook"] = fakeExec{lasts: test.lasts}
				pod := testpod.New("Always", "main")
				pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: execHook("hook")}
				s := supervise(t, fake, pod)
				begin := time.Now()
				go s.Stop(t.Context(), -1)
				time.Sleep(3 * time.Second)
				if err := s.Stop(t.Context(), test.grace); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin).Round(time.Second); took != test.takes {
					t.Errorf("took %v, want %v", took, test.takes)
				}
				if diff := cmp.Diff(test.calls, fake.called("ExecSync", "StopContainer")); diff != "" {
					t.Error(diff)
				}
				if got := reasons(s.events, ""); got != test.warns {
					t.Errorf("warnings %s, want %s", got, test.warns)
				}
			})
		})
	}
}

// TestStopDuringPreStopOfAKill: the same for a stop during a kill for a failed liveness probe.
func TestStopDuringPreStopOfAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.execs["hook"] = fakeExec{lasts: 10 * time.Second}
		fake.execs["alive"] = fakeExec{err: exited(1)}
		pod := testpod.New("Always", "main")
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: execHook("hook")}
		pod.Spec.Containers[0].LivenessProbe = execProbe("alive", 1)
		s := supervise(t, fake, pod)
		s.after(3 * time.Second)
		if got := fake.called("ExecSync"); len(got) == 0 || got[len(got)-1] != "ExecSync main hook" {
			t.Fatalf("no hook is under way: %v", got)
		}
		if err := s.Stop(t.Context(), -1); err != nil {
			t.Fatal(err)
		}
		var hooks int
		for _, call := range fake.called("ExecSync", "StopContainer") {
			switch call {
			case "ExecSync main hook":
				hooks++
			case "StopContainer main/30":
				t.Error("TERM while the hook runs")
			}
		}
		if hooks != 1 {
			t.Errorf("%d hooks", hooks)
		}
	})
}

// TestPreStopOfAPausedPod: a stop and a deadline resume a paused VM once, before the hooks, which run in it.
func TestPreStopOfAPausedPod(t *testing.T) {
	tests := []struct {
		name         string
		paused, stop bool
		want         []string
	}{
		{name: "stop", paused: true, stop: true, want: []string{"Resume s1", "ExecSync s hook"}},
		{name: "deadline", paused: true, want: []string{"Resume s1", "ExecSync s hook"}},
		{name: "runs", stop: true, want: []string{"ExecSync s hook"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				pod := withInits(testpod.New("Always", "main"), "s+")
				pod.Spec.ActiveDeadlineSeconds = new(int64(60))
				pod.Spec.InitContainers[0].Lifecycle = &corev1.Lifecycle{PreStop: execHook("hook")}
				s := supervise(t, fake, pod, func(o *Options) {
					o.Pauses = func(string) (uint64, bool) { return 1, test.paused }
					o.Resume = func(_ context.Context, sandbox string) error { return fake.call("Resume", sandbox) }
				})
				if test.stop {
					if err := s.Stop(t.Context(), -1); err != nil {
						t.Fatal(err)
					}
				} else if err := s.end(); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, fake.called("Resume", "ExecSync")); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestStopOrder: sidecars end after the regular containers, in reverse order.
func TestStopOrder(t *testing.T) {
	tests := []struct {
		name  string
		lives map[string]life
		grace time.Duration
		takes time.Duration
		calls []string
	}{
		{name: "one after the other", lives: map[string]life{"main": {term: 3 * time.Second}, "t": {term: 2 * time.Second},
			"s": {term: time.Second}}, grace: -1, takes: 6 * time.Second,
			calls: []string{"StopContainer main/30", "StopContainer t/27", "StopContainer s/25"}},
		{name: "a deaf regular one uses the grace up", lives: map[string]life{"main": {deaf: true}, "t": {}, "s": {}},
			grace: 10 * time.Second, takes: 10 * time.Second,
			calls: []string{"StopContainer main/10", "StopContainer s/2", "StopContainer t/2"}},
		{name: "deaf sidecars", lives: map[string]life{"t": {deaf: true}, "s": {deaf: true}}, grace: 10 * time.Second, takes: 12 * time.Second,
			calls: []string{"StopContainer main/10", "StopContainer t/10", "StopContainer s/2"}},
		{name: "no grace, no order", calls: []string{"StopContainer main/0", "StopContainer s/0", "StopContainer t/0"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				for name, life := range test.lives {
					fake.scripts[name] = append(fake.scripts[name], life)
				}
				s := supervise(t, fake, withInits(testpod.New("Always", "main"), "s+", "t+"))
				begin := time.Now()
				if err := s.Stop(t.Context(), test.grace); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin).Round(time.Millisecond); took != test.takes {
					t.Errorf("took %v, want %v", took, test.takes)
				}
				calls := fake.called("StopContainer")
				if test.name != "one after the other" && test.name != "deaf sidecars" {
					calls = sorted(calls)
				}
				if diff := cmp.Diff(test.calls, calls); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestSidecarsEndAfterTheRegularHaveDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["main"] = []life{{lasts: time.Second}}
		pod := withInits(testpod.New("OnFailure", "main"), "s+", "t+")
		pod.Spec.InitContainers[1].Lifecycle = &corev1.Lifecycle{PreStop: execHook("hook")}
		fake.execs["hook"] = fakeExec{lasts: 2 * time.Second}
		s := supervise(t, fake, pod)
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"ExecSync t hook", "StopContainer t/28", "StopContainer s/28"},
			fake.called("ExecSync", "StopContainer")); diff != "" {
			t.Error(diff)
		}
		if code, _ := s.ExitCode(); code != 0 || s.Status().Phase != corev1.PodSucceeded {
			t.Errorf("exit code %d, phase %s", code, s.Status().Phase)
		}
	})
}

// TestHooksOfTheNetwork: hooks over the network use Dial, whatever host they name. Any response is a success.
func TestHooksOfTheNetwork(t *testing.T) {
	var asked atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Host + r.URL.Path + " " + r.Header.Get("User-Agent"))
		w.WriteHeader(http.StatusTeapot)
	}))
	defer server.Close()
	dial := func(ctx context.Context, sandbox string, port int) (net.Conn, error) {
		if sandbox != "s1" || port != 8080 {
			return nil, fmt.Errorf("port %d of %s: %w", port, sandbox, syscall.ECONNREFUSED)
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", server.Listener.Addr().String())
	}
	spec := &corev1.Container{Name: "main", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}}
	get := func(port intstr.IntOrString) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/bye", Port: port, Host: "example.com"}}
	}
	connect := func(port int) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(int32(port))}}
	}
	tests := []struct {
		name string
		hook *corev1.LifecycleHandler
		err  string
	}{
		{name: "request", hook: get(intstr.FromInt32(8080))},
		{name: "request to a named port", hook: get(intstr.FromString("web"))},
		{name: "request to no port", hook: get(intstr.FromString("oops")), err: "neither a port's name"},
		{name: "request to a closed port", hook: get(intstr.FromInt32(81)), err: "connection refused"},
		{name: "connection", hook: connect(8080)},
		{name: "connection to a closed port", hook: connect(81), err: "connection refused"},
		{name: "nothing", hook: &corev1.LifecycleHandler{}, err: "no handler"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p, err := New(Options{Options: config.Options{Pod: testpod.New("Always", "main")}, Runtime: newFake(), Images: newFake(), Dial: dial})
			if err != nil {
				t.Fatal(err)
			}
			c := &container{Spec: spec, Newest: &instance.Instance{Sandbox: "s1", Status: &runtimeapi.ContainerStatus{}}}
			err = newRun(p).target(c).Hook(t.Context(), test.hook)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
		})
	}
	if got := asked.Load(); got != "example.com:8080/bye kube-lifecycle/1.37" {
		t.Errorf("asked for %v", got)
	}
}
