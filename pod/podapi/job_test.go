package podapi

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

func jobOf(rest string) string {
	return "apiVersion: batch/v1\nkind: Job\nmetadata: {name: sum}\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n" +
		"      containers: [{name: c, image: i}, {name: d, image: i, env: [{name: JOB_COMPLETION_INDEX, value: mine}]}]\n" + rest
}

// TestJobs: a Job's pods have their names, backoff limit and deadline, and each container has its index.
func TestJobs(t *testing.T) {
	for _, test := range []struct {
		name, rest string
		own        int // deadline of the template; 0 for none
		want       string
	}{
		{name: "defaults", want: "sum 6 - -/mine"},
		{name: "a limit", rest: "  backoffLimit: 0\n", want: "sum 0 - -/mine"},
		{name: "a deadline", rest: "  activeDeadlineSeconds: 9\n", want: "sum 6 9 -/mine"},
		{name: "a deadline before the pod's", rest: "  activeDeadlineSeconds: 9\n", own: 10, want: "sum 6 9 -/mine"},
		{name: "a deadline after the pod's", rest: "  activeDeadlineSeconds: 9\n", own: 8, want: "sum 6 8 -/mine"},
		{name: "one of one", rest: "  completions: 1\n  parallelism: 4\n", want: "sum 6 - -/mine"},
		{name: "two at a time", rest: "  completions: 2\n  parallelism: 2\n", want: "sum-0 6 - -/mine, sum-1 6 - -/mine"},
		{name: "more at a time than there are", rest: "  completions: 2\n  parallelism: 9\n", want: "sum-0 6 - -/mine, sum-1 6 - -/mine"},
		{name: "a queue of work", rest: "  parallelism: 2\n", want: "sum-0 6 - -/mine, sum-1 6 - -/mine"},
		{name: "indexed", rest: "  completions: 2\n  parallelism: 2\n  completionMode: Indexed\n",
			want: "sum-0 6 - 0/mine, sum-1 6 - 1/mine"},
		{name: "indexed, one", rest: "  completions: 1\n  completionMode: Indexed\n", want: "sum-0 6 - 0/mine"},
	} {
		text := jobOf(test.rest)
		if test.own > 0 {
			text = strings.Replace(text, "restartPolicy: Never", fmt.Sprintf("restartPolicy: Never\n      activeDeadlineSeconds: %d", test.own), 1)
		}
		found, err := Read("f.yaml", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		var got []string
		for _, pod := range found.Pods {
			deadline := "-"
			if pod.Spec.ActiveDeadlineSeconds != nil {
				deadline = fmt.Sprint(*pod.Spec.ActiveDeadlineSeconds)
			}
			var indexes []string
			for _, c := range pod.Spec.Containers {
				indexes = append(indexes, index(c.Env))
			}
			got = append(got, fmt.Sprintf("%s %s %s %s", pod.Name, pod.Annotations["batch.bulkhead.io/backoff-limit"], deadline,
				strings.Join(indexes, "/")))
			if want := strings.TrimPrefix(indexes[0], "-"); pod.Labels["batch.kubernetes.io/job-completion-index"] != want ||
				pod.Annotations["batch.kubernetes.io/job-completion-index"] != want || pod.Labels["job-name"] != "sum" {
				t.Errorf("%s: labels %v, annotations %v", test.name, pod.Labels, pod.Annotations)
			}
		}
		if text := strings.Join(got, ", "); text != test.want {
			t.Errorf("%s: %s, want %s", test.name, text, test.want)
		}
	}
}

func index(env []corev1.EnvVar) string {
	for _, one := range env {
		if one.Name == "JOB_COMPLETION_INDEX" {
			return one.Value
		}
	}
	return "-"
}

func TestJobsThatAreRefused(t *testing.T) {
	for _, test := range []struct {
		rest, want string
		class      error
	}{
		{rest: "  completions: 3\n  parallelism: 0\n", class: errNotHonoured,
			want: "f.yaml:10: spec.parallelism: 0 is not honoured: a job starts immediately"},
		{rest: "  parallelism: 0\n", class: errNotHonoured, want: "f.yaml:9: spec.parallelism: 0 is not honoured: a job starts immediately"},
		{rest: "  completions: 101\n  parallelism: 101\n", class: errInvalid, want: "f.yaml:9: spec.completions: 101 is not between 0 and 100"},
		{rest: "  completions: -1\n", class: errInvalid, want: "f.yaml:9: spec.completions: -1 is not between 0 and 100"},
		{rest: "  parallelism: 101\n", class: errInvalid, want: "f.yaml:9: spec.parallelism: 101 is not between 0 and 100"},
		{rest: "  backoffLimit: -1\n", class: errInvalid, want: "f.yaml:9: spec.backoffLimit: -1 is negative"},
		{rest: "  activeDeadlineSeconds: 0\n", class: errInvalid, want: "f.yaml:9: spec.activeDeadlineSeconds: 0 is not positive"},
		{rest: "  completionMode: Indexed\n", class: errInvalid, want: "spec.completions: is required when completionMode is Indexed"},
		{rest: "  backoffLimitPerIndex: 1\n", class: errNotHonoured, want: "f.yaml:9: spec.backoffLimitPerIndex: is not honoured"},
		{rest: "  podFailurePolicy: {rules: [{action: FailJob}]}\n", class: errNotHonoured,
			want: "f.yaml:9: spec.podFailurePolicy: is not honoured"},
	} {
		_, err := Read("f.yaml", []byte(jobOf(test.rest)))
		if !errors.Is(err, test.class) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.rest, err, test.want)
		}
	}
}

// TestJobsWhosePodsWait: the pods of a Job with more completions than parallelism have its parallelism, deadline and
// owner.
func TestJobsWhosePodsWait(t *testing.T) {
	for _, test := range []struct {
		rest     string
		parallel int // 0: all run at once
		deadline time.Duration
	}{
		{rest: "  completions: 3\n", parallel: 1},
		{rest: "  completions: 3\n  parallelism: 2\n  activeDeadlineSeconds: 60\n", parallel: 2, deadline: time.Minute},
		{rest: "  completions: 3\n  completionMode: Indexed\n", parallel: 1},
		{rest: "  completions: 3\n  parallelism: 3\n  activeDeadlineSeconds: 60\n"},
		{rest: "  completions: 3\n  parallelism: 4\n"},
		{rest: "  completions: 1\n"},
		{rest: "  completions: 0\n"},
		{rest: "  parallelism: 3\n"},
		{rest: ""},
	} {
		text := jobOf(test.rest)
		found, err := Read("f.yaml", []byte(text+"---\n"+strings.Replace(text, "name: sum", "name: other", 1)))
		if err != nil {
			t.Errorf("%q: %v", test.rest, err)
			continue
		}
		owners := map[string]types.UID{}
		for _, pod := range found.Pods {
			parallel, limited := podspec.Parallelism(pod)
			deadline, _ := podspec.JobDeadline(pod)
			if limited != (test.parallel > 0) || parallel != test.parallel || deadline != test.deadline {
				t.Errorf("%q: %s: %d at once, all within %v", test.rest, pod.Name, parallel, deadline)
			}
			job := pod.Labels["job-name"]
			if known, found := owners[job]; found && known != podspec.Owner(pod) {
				t.Errorf("%q: %s: another owner than its job's other pods", test.rest, pod.Name)
			}
			owners[job] = podspec.Owner(pod)
		}
		if len(found.Pods) > 0 && (len(owners) != 2 || owners["sum"] == owners["other"]) {
			t.Errorf("%q: owners %v", test.rest, owners)
		}
	}
}
