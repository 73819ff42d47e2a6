package status

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// world is a Reporter with one pod.
type world struct {
	t      *testing.T
	client *fake.Clientset
	r      *Reporter

	mu      sync.Mutex
	now     corev1.PodStatus
	has     bool
	gone    bool // removed from the API server
	patches []string
	fail    error // of each patch
	react   func(patch string) *corev1.Pod
}

func inWorld(t *testing.T, test func(*testing.T, *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "uid", ResourceVersion: "5"}}
		p.Status = corev1.PodStatus{
			Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort, NominatedNodeName: "elsewhere",
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, Reason: "theirs"},
				{Type: "example.org/gate", Status: corev1.ConditionTrue},
				{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Unix(1000, 0)},
			},
		}
		w := &world{t: t, client: fake.NewClientset(p), has: true}
		w.client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.patches = append(w.patches, string(a.(clienttesting.PatchAction).GetPatch()))
			if w.react != nil {
				return true, w.react(w.patches[len(w.patches)-1]), nil
			}
			return w.fail != nil, nil, w.fail
		})
		w.r = New(Options{
			Client: w.client, Pod: func(types.UID) *corev1.Pod {
				w.mu.Lock()
				defer w.mu.Unlock()
				if w.gone {
					return nil
				}
				return p
			},
			Status: func(types.UID) (corev1.PodStatus, bool) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.now, w.has
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		all.Go(func() { w.r.Run(ctx) })
		test(t, w)
	})
}

// set changes the status and waits until it is reported.
func (w *world) set(status corev1.PodStatus) {
	w.mu.Lock()
	w.now = status
	w.mu.Unlock()
	w.r.Changed("uid")
	time.Sleep(time.Second)
	synctest.Wait()
}

// live returns the pod as the API server has it.
func (w *world) live() *corev1.Pod {
	w.t.Helper()
	got, err := w.client.CoreV1().Pods("default").Get(w.t.Context(), "p", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func ready(status corev1.ConditionStatus) corev1.PodStatus {
	return corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.0.0.1", QOSClass: corev1.PodQOSBurstable, StartTime: new(metav1.Unix(2000, 0)),
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Unix(2000, 0)},
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, Reason: "ours"},
		},
	}
}

// TestPatch: a patch contains the pod's UID and only the node's own conditions. Other writers' conditions stay, and an
// unchanged status is not reported again.
func TestPatch(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.set(ready(corev1.ConditionTrue))
		if len(w.patches) != 1 {
			t.Fatalf("%d patches", len(w.patches))
		}
		var patch struct {
			Metadata map[string]string `json:"metadata"`
			Status   struct {
				Conditions []corev1.PodCondition `json:"conditions"`
			} `json:"status"`
		}
		if err := json.Unmarshal([]byte(w.patches[0]), &patch); err != nil {
			t.Fatal(err)
		}
		if len(patch.Metadata) != 1 || patch.Metadata["uid"] != "uid" {
			t.Errorf("no precondition: %s", w.patches[0])
		}
		for _, c := range patch.Status.Conditions {
			if c.Type != corev1.PodReady {
				t.Errorf("another writer's condition is patched: %s", w.patches[0])
			}
		}
		got := w.live().Status
		if len(got.Conditions) != 3 || got.Conditions[0].Reason != "theirs" || got.Phase != corev1.PodRunning ||
			got.QOSClass != corev1.PodQOSBestEffort || got.NominatedNodeName != "elsewhere" {
			t.Errorf("reported: %+v", got)
		}
		w.set(ready(corev1.ConditionTrue))
		if len(w.patches) != 1 {
			t.Errorf("reported twice: %v", w.patches)
		}
	})
}

// TestThereAndBack: a status that equals the cached one is still reported if another one was reported since.
func TestThereAndBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.react = func(patch string) *corev1.Pod {
			p := &corev1.Pod{}
			p.Status.Phase, p.ResourceVersion = corev1.PodRunning, "7"
			if strings.Contains(patch, `"Pending"`) {
				p.Status.Phase, p.ResourceVersion = corev1.PodPending, "8"
			}
			return p
		}
		w.set(corev1.PodStatus{Phase: corev1.PodRunning})
		w.set(corev1.PodStatus{Phase: corev1.PodPending})
		if n := len(w.patches); n != 2 || !strings.Contains(w.patches[1], `"phase":"Pending"`) {
			t.Errorf("%d patches: %v", n, w.patches)
		}
	})
}

// TestGathered: successive changes are reported together.
func TestGathered(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for range 50 {
			w.r.Changed("uid")
		}
		w.set(ready(corev1.ConditionTrue))
		if len(w.patches) != 1 {
			t.Errorf("%d patches", len(w.patches))
		}
	})
}

// TestFailures: a failed report is retried with pauses. The status of a pod that was deleted or replaced is not
// reported.
func TestFailures(t *testing.T) {
	pods := corev1.Resource("pods")
	for name, tt := range map[string]struct {
		err   error
		again bool
	}{
		"429":       {apierrors.NewTooManyRequests("slowly", 1), true},
		"500":       {apierrors.NewInternalError(errors.New("broken")), true},
		"no answer": {errors.New("connection refused"), true},
		"409":       {apierrors.NewConflict(pods, "p", errors.New("another version")), true},
		"404":       {apierrors.NewNotFound(pods, "p"), false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.fail = tt.err
				w.set(ready(corev1.ConditionTrue))
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				w.mu.Lock()
				n := len(w.patches)
				w.fail = nil
				w.mu.Unlock()
				if tt.again && (n < 15 || n > 40) || !tt.again && n != 1 {
					t.Errorf("reported %d times", n)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if tt.again && w.live().Status.Phase != corev1.PodRunning {
					t.Error("it was never reported")
				}
			})
		})
	}
}

// TestEnded: an ended pod keeps its status. A pod that the runner does not have fails with a reason.
func TestEnded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if err := w.r.Fail(t.Context(), w.live(), "OutOfcpu", "too much"); err != nil {
			t.Fatal(err)
		}
		got := w.live().Status
		if got.Phase != corev1.PodFailed || got.Reason != "OutOfcpu" || len(got.Conditions) != 3 {
			t.Errorf("reported: %+v", got)
		}
		next := merge(&got, ready(corev1.ConditionTrue), false)
		if next.Phase != corev1.PodFailed || next.Reason != "OutOfcpu" {
			t.Errorf("a pod that had failed is %s", next.Phase)
		}
		if next := merge(&got, ready(corev1.ConditionTrue), true); next.Phase != corev1.PodRunning || next.Reason != "" {
			t.Errorf("the mirror of a pod that runs again is %s, %s", next.Phase, next.Reason)
		}
		w.has = false
		n := len(w.patches)
		w.set(corev1.PodStatus{})
		if len(w.patches) != n {
			t.Error("a status was invented")
		}
	})
}

// TestFailAfterTheEnd: a pod with a reported end keeps its status, even if Fail gets an older copy of it.
func TestFailAfterTheEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.react = func(string) *corev1.Pod {
			p := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}
			p.ResourceVersion = "7"
			return p
		}
		stale := w.live()
		w.set(corev1.PodStatus{Phase: corev1.PodSucceeded})
		if err := w.r.Fail(t.Context(), stale, "", "The pod was deleted before it was started"); err != nil || len(w.patches) != 1 {
			t.Errorf("%v, reported %q", err, w.patches)
		}
	})
}

// TestFailedDoesNotRun: a pod that ran, and that the runner has lost, is not ready and has no running container.
func TestFailedDoesNotRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ran := ready(corev1.ConditionTrue)
		began := metav1.Unix(1500, 0)
		ran.Conditions = append(ran.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue})
		ran.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "c", Ready: true, Started: new(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}}},
			{Name: "d", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}},
		}
		w.set(ran)
		if err := w.r.Fail(t.Context(), w.live(), "OutOfcpu", "too much"); err != nil {
			t.Fatal(err)
		}
		got := w.live().Status
		for _, c := range got.Conditions {
			old := time.Since(c.LastTransitionTime.Time) > time.Minute
			if c.Type == corev1.PodReady && (c.Status != corev1.ConditionFalse || c.Reason != podFailed || old) ||
				c.Type == corev1.PodResizePending || c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
				t.Errorf("reported: %+v", c)
			}
		}
		c, d := got.ContainerStatuses[0], got.ContainerStatuses[1]
		if end := c.State.Terminated; c.Ready || *c.Started || end == nil || end.ExitCode != 137 || !end.StartedAt.Equal(&began) ||
			d.State.Terminated == nil || d.State.Terminated.ExitCode != 3 {
			t.Errorf("reported: %+v and %+v", c, d)
		}
	})
}

// TestAddressesStay: a pod without known addresses, such as an ended one, keeps the last reported addresses, as with a
// kubelet. A new address replaces them.
func TestAddressesStay(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, tt := range []struct {
			phase corev1.PodPhase
			ips   []corev1.PodIP
			want  []corev1.PodIP
		}{
			{phase: corev1.PodPending},
			{phase: corev1.PodRunning, ips: []corev1.PodIP{{IP: "10.0.0.1"}}, want: []corev1.PodIP{{IP: "10.0.0.1"}}},
			{
				phase: corev1.PodRunning, ips: []corev1.PodIP{{IP: "10.0.0.2"}, {IP: "fd00::2"}},
				want: []corev1.PodIP{{IP: "10.0.0.2"}, {IP: "fd00::2"}},
			},
			{phase: corev1.PodSucceeded, want: []corev1.PodIP{{IP: "10.0.0.2"}, {IP: "fd00::2"}}},
		} {
			now := corev1.PodStatus{Phase: tt.phase, PodIPs: tt.ips}
			if len(tt.ips) > 0 {
				now.PodIP = tt.ips[0].IP
			}
			w.set(now)
			got, first := w.live().Status, ""
			if len(tt.want) > 0 {
				first = tt.want[0].IP
			}
			if got.Phase != tt.phase || got.PodIP != first || !slices.Equal(got.PodIPs, tt.want) {
				t.Errorf("%s with %v: %s, reported %q, %v", tt.phase, tt.ips, got.Phase, got.PodIP, got.PodIPs)
			}
		}
	})
}

// TestForgotten: the Reporter drops its notes about a pod that the API server does not have, such as a mirror.
func TestForgotten(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.set(ready(corev1.ConditionTrue))
		w.mu.Lock()
		w.gone = true
		w.mu.Unlock()
		w.set(ready(corev1.ConditionFalse))
		w.r.mu.Lock()
		defer w.r.mu.Unlock()
		if len(w.patches) != 1 || len(w.r.last) != 0 {
			t.Errorf("%d patches, %d pods are kept", len(w.patches), len(w.r.last))
		}
	})
}
