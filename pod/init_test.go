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

// withInits adds init containers to a pod; a name with a final "+" is a sidecar.
func withInits(pod *corev1.Pod, names ...string) *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	for _, name := range names {
		c := corev1.Container{Name: strings.TrimSuffix(name, "+"), Image: "here:1", ImagePullPolicy: corev1.PullIfNotPresent}
		if strings.HasSuffix(name, "+") {
			c.RestartPolicy = &always
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	return pod
}

// starts returns the started containers, in order.
func starts(fake *fakeCRI) string {
	var names []string
	for _, call := range fake.called("StartContainer") {
		names = append(names, strings.TrimPrefix(call, "StartContainer "))
	}
	return strings.Join(names, " ")
}

// states returns all containers' states in short, init containers first.
func states(status corev1.PodStatus) map[string]string {
	out := map[string]string{}
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses,
		status.EphemeralContainerStatuses} {
		for _, c := range list {
			out[c.Name] = state(c)
		}
	}
	return out
}

func TestInitialContainers(t *testing.T) {
	good, bad := life{lasts: time.Second}, life{lasts: time.Second, code: 7}
	tests := []struct {
		name   string
		policy corev1.RestartPolicy
		inits  []string
		lives  map[string][]life
		after  time.Duration
		starts string
		phase  corev1.PodPhase
		states map[string]string
	}{
		{name: "one after the other", policy: "Always", inits: []string{"i", "j"}, lives: map[string][]life{"i": {good}, "j": {good}},
			after:  3 * time.Second,
			starts: "i j main", phase: "Running", states: map[string]string{"i": "terminated Completed", "j": "terminated Completed",
				"main": "running"}},
		{name: "the first runs", policy: "Always", inits: []string{"i", "j"}, lives: map[string][]life{"j": {good}}, after: time.Minute,
			starts: "i", phase: "Pending", states: map[string]string{"i": "running", "j": "waiting PodInitializing",
				"main": "waiting PodInitializing"}},
		{name: "the second runs", policy: "Always", inits: []string{"i", "j"}, lives: map[string][]life{"i": {good}}, after: time.Minute,
			starts: "i j", phase: "Pending", states: map[string]string{"i": "terminated Completed", "j": "running",
				"main": "waiting PodInitializing"}},
		{name: "fails once, always", policy: "Always", inits: []string{"i"}, lives: map[string][]life{"i": {bad, good}}, after: time.Minute,
			starts: "i i main", phase: "Running", states: map[string]string{"i": "terminated Completed", "main": "running"}},
		{name: "fails once, on failure", policy: "OnFailure", inits: []string{"i"}, lives: map[string][]life{"i": {bad, good}},
			after:  time.Minute,
			starts: "i i main", phase: "Running", states: map[string]string{"i": "terminated Completed", "main": "running"}},
		{name: "fails on", policy: "Always", inits: []string{"i"}, lives: map[string][]life{"i": {bad}}, after: 15 * time.Second,
			starts: "i i i", phase: "Pending", states: map[string]string{"i": "waiting CrashLoopBackOff", "main": "waiting PodInitializing"}},
		{name: "fails, never", policy: "Never", inits: []string{"i", "j"}, lives: map[string][]life{"i": {bad}}, after: time.Minute,
			starts: "i", phase: "Failed", states: map[string]string{"i": "terminated Error", "j": "waiting PodInitializing",
				"main": "waiting PodInitializing"}},
		{name: "the second fails, never", policy: "Never", inits: []string{"i", "j"}, lives: map[string][]life{"i": {good}, "j": {bad}},
			after:  time.Minute,
			starts: "i j", phase: "Failed", states: map[string]string{"i": "terminated Completed", "j": "terminated Error",
				"main": "waiting PodInitializing"}},
		{name: "succeeds, never", policy: "Never", inits: []string{"i"}, lives: map[string][]life{"i": {good}, "main": {good}},
			after:  time.Minute,
			starts: "i main", phase: "Succeeded", states: map[string]string{"i": "terminated Completed", "main": "terminated Completed"}},
		{name: "a sidecar starts and stays", policy: "Always", inits: []string{"s+"}, after: time.Minute,
			starts: "s main", phase: "Running", states: map[string]string{"s": "running", "main": "running"}},
		{name: "a sidecar among init containers", policy: "Always", inits: []string{"i", "s+", "j"},
			lives: map[string][]life{"i": {good}, "j": {good}}, after: time.Minute,
			starts: "i s j main", phase: "Running",
			states: map[string]string{"i": "terminated Completed", "s": "running", "j": "terminated Completed", "main": "running"}},
		{name: "a sidecar that falls during the start is started beside it", policy: "Never", inits: []string{"s+", "i"},
			lives: map[string][]life{"s": {bad, {}}, "i": {{lasts: time.Minute}}}, after: 2 * time.Minute,
			starts: "s i s main", phase: "Running", states: map[string]string{"s": "running", "i": "terminated Completed", "main": "running"}},
		{name: "a successful sidecar is restarted with any policy", policy: "Never", inits: []string{"s+"},
			lives: map[string][]life{"s": {good, {}}}, after: time.Minute, starts: "s main s", phase: "Running",
			states: map[string]string{"s": "running", "main": "running"}},
		{name: "a sidecar does not hold the pod", policy: "OnFailure", inits: []string{"s+"}, lives: map[string][]life{"main": {good}},
			after:  time.Minute,
			starts: "s main", phase: "Succeeded", states: map[string]string{"s": "terminated Error", "main": "terminated Completed"}},
		{name: "a failed sidecar does not hold the pod", policy: "Never", inits: []string{"s+"},
			lives: map[string][]life{"s": {{lasts: 2 * time.Second, code: 9}}, "main": {{lasts: 3 * time.Second}}}, after: time.Minute,
			starts: "s main s", phase: "Succeeded", states: map[string]string{"s": "terminated Error", "main": "terminated Completed"}},
		{name: "a sidecar ends with a start that failed", policy: "Never", inits: []string{"s+", "i"}, lives: map[string][]life{"i": {bad}},
			after:  time.Minute,
			starts: "s i", phase: "Failed", states: map[string]string{"s": "terminated Error", "i": "terminated Error",
				"main": "waiting PodInitializing"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				for name, lives := range test.lives {
					fake.scripts[name] = lives
				}
				status := supervise(t, fake, withInits(testpod.New(test.policy, "main"), test.inits...)).after(test.after)
				if got := starts(fake); got != test.starts {
					t.Errorf("started %s, want %s", got, test.starts)
				}
				if status.Phase != test.phase {
					t.Errorf("phase %s, want %s", status.Phase, test.phase)
				}
				if diff := cmp.Diff(test.states, states(status)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestImagesAreFetchedDuringTheStart: all images are pulled concurrently, while each container waits for its turn.
func TestImagesAreFetchedDuringTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["i"] = []life{{lasts: time.Minute}}
		pod := withInits(testpod.New("Always", "main"), "i")
		pod.Spec.Containers[0].Image = "away:1"
		s := supervise(t, fake, pod)
		s.after(time.Second)
		if got := fake.called("PullImage"); len(got) != 1 {
			t.Errorf("pulls %v", got)
		}
		if status := s.after(time.Minute); state(status.ContainerStatuses[0]) != "running" {
			t.Errorf("%v", states(status))
		}
	})
}

func TestStatusOfInitialContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["i"] = []life{{lasts: time.Second}}
		s := supervise(t, fake, withInits(testpod.New("Always", "main"), "i", "s+"))
		if got := conditions(s.Status())["Initialized"]; got != "False ContainersNotInitialized" {
			t.Errorf("initialized at the start: %s", got)
		}
		status := s.after(2 * time.Second)
		i, sidecar := status.InitContainerStatuses[0], status.InitContainerStatuses[1]
		if !i.Ready || *i.Started || !sidecar.Ready || !*sidecar.Started {
			t.Errorf("%+v, %+v", i, sidecar)
		}
		want := map[string]string{"PodReadyToStartContainers": "True", "Initialized": "True", "Ready": "True", "ContainersReady": "True",
			"PodScheduled": "True"}
		if diff := cmp.Diff(want, conditions(status)); diff != "" {
			t.Error(diff)
		}
	})
}

// TestInitialContainersRunAgainInANewVM: a new VM runs the init containers again, and then its other containers.
func TestInitialContainersRunAgainInANewVM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["i"] = []life{{lasts: time.Second}}
		fake.scripts["done"] = []life{{lasts: time.Second}}
		s := supervise(t, fake, withInits(testpod.New("OnFailure", "main", "done"), "i", "s+"))
		s.after(time.Minute)
		fake.die(s.Sandbox(), false)
		status := s.after(time.Minute)
		if got := starts(fake); got != "i s main done i s main" {
			t.Errorf("started %s", got)
		}
		if status.Phase != corev1.PodRunning || status.InitContainerStatuses[0].RestartCount != 1 {
			t.Errorf("phase %s, %+v", status.Phase, status.InitContainerStatuses[0])
		}
	})
}

// TestVMDiesBeforeTheRegularContainers: a pod that is never restarted ends with its VM, even before its regular containers
// have started.
func TestVMDiesBeforeTheRegularContainers(t *testing.T) {
	for policy, want := range map[corev1.RestartPolicy]corev1.PodPhase{"Never": "Failed", "Always": "Running", "OnFailure": "Running"} {
		for _, lasts := range []time.Duration{time.Second, time.Minute} {
			t.Run(string(policy)+" "+lasts.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fake := newFake()
					fake.scripts["i"] = []life{{lasts: lasts}, {lasts: time.Second}}
					fake.scripts["s"] = []life{{}}
					s := supervise(t, fake, withInits(testpod.New(policy, "main"), "i", "s+", "j"))
					s.after(2 * time.Second)
					fake.scripts["j"] = []life{{lasts: time.Second}}
					fake.die(s.Sandbox(), false)
					if status := s.after(10 * time.Minute); status.Phase != want {
						t.Errorf("phase %s, want %s: %v", status.Phase, want, states(status))
					}
				})
			})
		}
	}
}

func TestTakeOverDuringTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["i"], fake.scripts["j"] = []life{{lasts: time.Second}}, []life{{lasts: time.Minute}}
		pod := withInits(testpod.New("Never", "main"), "i", "s+", "j")
		first := supervise(t, fake, pod)
		first.after(10 * time.Second)
		first.cancel()
		first.end()
		status := supervise(t, fake, pod).after(2 * time.Minute)
		if got := starts(fake); got != "i s j main" {
			t.Errorf("started %s", got)
		}
		if status.Phase != corev1.PodRunning {
			t.Errorf("phase %s", status.Phase)
		}
	})
}

// TestExitCodeOfAnInitialContainer: init containers count, and the exit code is the first failed one's.
func TestExitCodeOfAnInitialContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["i"], fake.scripts["s"] = []life{{lasts: time.Second, code: 5}}, []life{{termCode: 3}}
		s := supervise(t, fake, withInits(testpod.New("Never", "main"), "s+", "i"))
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		if code, known := s.ExitCode(); code != 5 || !known {
			t.Errorf("exit code %d, known %v", code, known)
		}
	})
}

func TestOwnRestartPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		never := corev1.ContainerRestartPolicyNever
		fake.scripts["main"] = []life{{lasts: time.Second, code: 42}, {lasts: time.Second, code: 42}, {lasts: time.Second, code: 3}}
		pod := testpod.New("Always", "main")
		pod.Spec.Containers[0].RestartPolicy, pod.Spec.Containers[0].RestartPolicyRules = &never,
			[]corev1.ContainerRestartRule{testpod.RestartOn("In", 42)}
		s := supervise(t, fake, pod)
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		if code, _ := s.ExitCode(); code != 3 || starts(fake) != "main main main" || s.Status().Phase != corev1.PodFailed {
			t.Errorf("exit code %d, phase %s, started %s", code, s.Status().Phase, starts(fake))
		}
	})
}
