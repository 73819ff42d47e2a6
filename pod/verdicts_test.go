package pod

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
)

// TestTakenOverWithProbes: the last engine's verdict holds under the next one until a probe returns another result.
func TestTakenOverWithProbes(t *testing.T) {
	for _, test := range []struct {
		name          string
		knows         bool
		atOnce, later string
	}{
		{name: "known", knows: true, atOnce: "running started ready", later: "running started ready"},
		{name: "not known", atOnce: "running", later: "running"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				say := answer(fake, map[string]bool{"ready": true, "up": true})
				pod := testpod.New("Always", "main")
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

// TestTakenOverLongBeforeItStarted: a container that is known not to have started gets its full time to start again,
// because its probes were interrupted.
func TestTakenOverLongBeforeItStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		answer(fake, map[string]bool{})
		pod := testpod.New("Always", "main")
		pod.Spec.Containers[0].StartupProbe = execProbe("up", 20)
		first := supervise(t, fake, pod)
		first.after(5 * time.Second)
		known := first.Verdicts()
		first.cancel()
		first.end()
		time.Sleep(time.Hour)
		second := supervise(t, fake, pod, func(o *Options) { o.Last = known })
		if got := healthOf(second.after(15 * time.Second).ContainerStatuses[0]); got != "running" {
			t.Errorf("container is %s", got)
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

// TestTakenOverWhileItIsEnded: a container that is being stopped for its liveness or a resize, and exits with 0, is
// restarted by the next engine too.
func TestTakenOverWhileItIsEnded(t *testing.T) {
	for _, cause := range []string{"liveness", "resize"} {
		t.Run(cause, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.scripts["main"] = []life{{term: 5 * time.Second, termCode: -1}, {}}
				say := answer(fake, map[string]bool{"alive": true})
				pod := testpod.New("OnFailure", "main")
				main := &pod.Spec.Containers[0]
				main.Resources = limited("cpu=1", "memory=64Mi")
				if cause == "liveness" {
					main.LivenessProbe = execProbe("alive", 1)
				} else {
					main.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
				}
				if !Remembers(pod) {
					t.Error("no verdicts of the pod are remembered")
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
					t.Errorf("container is %s, after %v", got, fake.called("StartContainer"))
				}
				if id, _ := second.Container("main"); second.Verdicts()[id].Ending {
					t.Error("the restarted container is being stopped")
				}
			})
		})
	}
}
