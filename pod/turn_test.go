package pod

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// queued supervises a pod that waits for its turn, and returns the function that sets its turn.
func queued(t *testing.T, fake *fakeCRI, change ...func(*Options)) (*supervised, func(Turn)) {
	t.Helper()
	var turn atomic.Int32
	pod := testpod.New("Never", "main")
	pod.Annotations = map[string]string{podspec.AnnotationParallelism: "2"}
	pod.OwnerReferences = []metav1.OwnerReference{{UID: "job"}}
	pod.Spec.Containers[0].Image = "away:1"
	change = append(change, func(o *Options) { o.Turn = func() Turn { return Turn(turn.Load()) } })
	s := supervise(t, fake, pod, change...)
	if status := s.after(time.Hour); status.Phase != corev1.PodPending {
		t.Fatalf("it has not waited: %+v", status)
	}
	return s, func(now Turn) {
		turn.Store(int32(now))
		s.Changed()
		synctest.Wait()
	}
}

// touched returns the calls that begin a pod.
func touched(fake *fakeCRI) []string {
	return fake.called("RunPodSandbox", "PullImage", "StartContainer")
}

// TestTurn: a waiting pod has no objects in the runtime, reports the reason, and begins when its turn comes. Its time
// counts from then.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		s, say := queued(t, fake, func(o *Options) { o.Pod.Spec.ActiveDeadlineSeconds = new(int64(60)) })
		say(TurnLater)
		status := s.Status()
		if calls := touched(fake); calls != nil || status.StartTime != nil || len(status.ContainerStatuses) != 0 {
			t.Errorf("started before its turn: got calls %v and status %+v, want none", calls, status)
		}
		if diff := cmp.Diff(map[string]string{"PodScheduled": "False WaitingForTurn"}, conditions(status)); diff != "" {
			t.Error(diff)
		}
		if len(s.events) != 1 || s.events[0].Message != "the pod waits for its turn: the Job's parallelism is 2" {
			t.Errorf("events %+v", s.events)
		}
		turn := time.Now()
		say(TurnNow)
		say(TurnNever) // Turn is no longer called
		status = s.after(30 * time.Second)
		if status.Phase != corev1.PodRunning || !status.StartTime.Time.Equal(turn) || conditions(status)["PodScheduled"] != "True" {
			t.Errorf("it does not run: %+v", status)
		}
		if err := s.end(); err != nil || s.Status().Reason != ReasonDeadline || time.Since(turn) < time.Minute {
			t.Errorf("%v after %v: %+v", err, time.Since(turn), s.Status())
		}
	})
}

// TestTurnNeverComes: a pod that ends before its turn ends immediately, without objects in the runtime.
func TestTurnNeverComes(t *testing.T) {
	for _, test := range []struct {
		name            string
		deadline        time.Duration
		end             func(*testing.T, *supervised, func(Turn))
		reason, message string
	}{
		{name: "the Job has failed", end: func(_ *testing.T, _ *supervised, say func(Turn)) { say(TurnNever) },
			reason: ReasonJobFailed, message: messageJobFailed},
		{name: "stopped", end: func(t *testing.T, s *supervised, _ func(Turn)) {
			before := time.Now()
			if err := s.Stop(t.Context(), time.Minute); err != nil || time.Since(before) > 0 {
				t.Errorf("%v after %v", err, time.Since(before))
			}
		}, message: messageStopped},
		{name: "the Job takes too long", deadline: 2 * time.Hour, end: func(*testing.T, *supervised, func(Turn)) { time.Sleep(time.Hour) },
			reason: ReasonDeadline, message: messageJobDeadline},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				s, say := queued(t, fake, func(o *Options) {
					if test.deadline > 0 {
						o.Deadline = time.Now().Add(test.deadline)
					}
				})
				test.end(t, s, say)
				if err := s.end(); err != nil {
					t.Error(err)
				}
				status := s.Status()
				if status.Phase != corev1.PodFailed || status.Reason != test.reason || status.Message != test.message {
					t.Errorf("%s, %q: %q", status.Phase, status.Reason, status.Message)
				}
				if got := conditions(status)["PodScheduled"]; got != "False NeverScheduled" {
					t.Errorf("scheduled: %s", got)
				}
				if calls := touched(fake); calls != nil || len(status.ContainerStatuses) != 0 {
					t.Errorf("started before its turn: got calls %v and statuses %+v, want none", calls, status.ContainerStatuses)
				}
			})
		})
	}
}

// TestTurnHasCome: a pod with a sandbox of an earlier Run continues.
func TestTurnHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		pod := testpod.New("Never", "main")
		first := supervise(t, fake, pod)
		first.cancel()
		<-first.ended
		s := supervise(t, fake, pod, func(o *Options) {
			o.Turn = func() Turn { t.Error("asked"); return TurnNever }
		})
		if status := s.after(time.Hour); status.Phase != corev1.PodRunning {
			t.Errorf("%+v", status)
		}
	})
}

// TestDeadlineOfARunningPod: Options.Deadline also ends a running pod.
func TestDeadlineOfARunningPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervise(t, newFake(), testpod.New("Never", "main"), func(o *Options) { o.Deadline = time.Now().Add(time.Minute) })
		if status := s.after(59 * time.Second); status.Phase != corev1.PodRunning {
			t.Errorf("%+v", status)
		}
		if err := s.end(); err != nil || s.Status().Message != messageDeadline {
			t.Errorf("%v, %+v", err, s.Status())
		}
	})
}

// TestTurnThatComesAtOnce: a pod does not report a wait before Turn was called.
func TestTurnThatComesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		p, err := New(Options{
			Options: config.Options{Pod: testpod.New("Never", "main")}, Runtime: fake, Images: fake, Turn: func() Turn { return TurnNow },
		})
		if err != nil {
			t.Fatal(err)
		}
		if status := p.Status(); len(status.Conditions) != 0 || status.StartTime != nil {
			t.Errorf("%+v", status)
		}
	})
}
