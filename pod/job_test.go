package pod

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// TestBackoffLimit: a failed container of a Job's pod is retried, with the delays of any restart, until the limit. Then
// the whole pod ends.
func TestBackoffLimit(t *testing.T) {
	bad, good := life{lasts: time.Second, code: 3}, life{lasts: time.Second}
	for _, test := range []struct {
		name    string
		policy  corev1.RestartPolicy
		limit   string
		inits   []string
		scripts map[string][]life
		starts  string
		phase   corev1.PodPhase
		reason  string
		code    int
	}{
		{name: "never, good at the third", policy: "Never", limit: "2", scripts: map[string][]life{"a": {bad, bad, good}},
			starts: "a a a", phase: "Succeeded"},
		{name: "never, bad", policy: "Never", limit: "2", scripts: map[string][]life{"a": {bad}},
			starts: "a a a", phase: "Failed", reason: "BackoffLimitExceeded", code: 3},
		{name: "on failure, bad", policy: "OnFailure", limit: "1", scripts: map[string][]life{"a": {bad}},
			starts: "a a", phase: "Failed", reason: "BackoffLimitExceeded", code: 3},
		{name: "none", policy: "OnFailure", limit: "0", scripts: map[string][]life{"a": {bad}},
			starts: "a", phase: "Failed", reason: "BackoffLimitExceeded", code: 3},
		{name: "an init container", policy: "Never", limit: "1", inits: []string{"i"}, scripts: map[string][]life{"i": {bad}},
			starts: "i i", phase: "Failed", reason: "BackoffLimitExceeded", code: 3},
		{name: "no job's", policy: "Never", scripts: map[string][]life{"a": {bad}}, starts: "a", phase: "Failed", code: 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.scripts = test.scripts
				pod := withInits(testpod.New(test.policy, "a"), test.inits...)
				if test.limit != "" {
					pod.Annotations = map[string]string{podspec.AnnotationBackoffLimit: test.limit}
				}
				s := supervise(t, fake, pod)
				if err := s.end(); err != nil {
					t.Fatal(err)
				}
				status := s.Status()
				if got := starts(fake); got != test.starts || status.Phase != test.phase || status.Reason != test.reason {
					t.Errorf("started %q, want %q; %s %q", got, test.starts, status.Phase, status.Reason)
				}
				if code, _ := s.ExitCode(); code != test.code {
					t.Errorf("exit code %d", code)
				}
			})
		})
	}
}

// TestBackoffLimitEndsTheOthers: a running container ends with the Job, and a lost VM counts as a failure.
func TestBackoffLimitEndsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["a"] = []life{{lasts: time.Second, code: 3}}
		pod := testpod.New("Never", "a", "b")
		pod.Annotations = map[string]string{podspec.AnnotationBackoffLimit: "1"}
		s := supervise(t, fake, pod)
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		if status := s.Status(); status.Reason != ReasonBackoffLimit || state(status.ContainerStatuses[1]) != "terminated Error" {
			t.Errorf("%s, %s", status.Reason, state(status.ContainerStatuses[1]))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		pod := testpod.New("Never", "a")
		pod.Annotations = map[string]string{podspec.AnnotationBackoffLimit: "1"}
		s := supervise(t, fake, pod)
		for range 2 {
			fake.die(s.Sandbox(), false)
			s.after(time.Minute)
		}
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		if status := s.Status(); starts(fake) != "a a" || status.Reason != ReasonBackoffLimit {
			t.Errorf("started %q, %s %s", starts(fake), status.Phase, status.Reason)
		}
	})
}

// TestAResizeIsNoFailure: a container of a Job that is restarted for a resize has not failed.
func TestAResizeIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		pod := testpod.New("Never", "a")
		pod.Annotations = map[string]string{podspec.AnnotationBackoffLimit: "0"}
		pod.Spec.Containers[0].Resources = limited("cpu=1", "memory=64Mi")
		pod.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{
			{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer},
		}
		s := supervise(t, fake, pod)
		if _, err := s.Resize("a", limited("cpu=1", "memory=128Mi")); err != nil {
			t.Fatal(err)
		}
		if status := s.after(time.Minute); starts(fake) != "a a" || status.Phase != corev1.PodRunning {
			t.Errorf("started %q, %s %s", starts(fake), status.Phase, status.Reason)
		}
	})
}

// TestStartErrorIsARule: rules see the exit code of the status.
func TestStartErrorIsARule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["a"] = []life{{fails: errors.New("no such file"), code: 127}, {lasts: time.Second}}
		pod := testpod.New("Never", "a")
		never := corev1.ContainerRestartPolicyNever
		pod.Spec.Containers[0].RestartPolicy = &never
		pod.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{testpod.RestartOn("In", 128)}
		s := supervise(t, fake, pod)
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		if status := s.Status(); starts(fake) != "a a" || status.Phase != corev1.PodSucceeded {
			t.Errorf("started %q, %s", starts(fake), status.Phase)
		}
	})
}
