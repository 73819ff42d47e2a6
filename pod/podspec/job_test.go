package podspec

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestParallelism: a pod waits for the others of its owner if it has an owner and the annotation.
func TestParallelism(t *testing.T) {
	for _, test := range []struct {
		text, owner string
		want        int
		limited     bool
	}{
		{text: "2", owner: "job", want: 2, limited: true},
		{text: "2", want: 2},
		{text: "0", owner: "job"},
		{text: "-1", owner: "job", want: -1},
		{text: "all", owner: "job"},
		{owner: "job"},
	} {
		pod := &corev1.Pod{}
		pod.Annotations = map[string]string{AnnotationParallelism: test.text}
		if test.owner != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{UID: "job"}}
		}
		if n, limited := Parallelism(pod); n != test.want || limited != test.limited {
			t.Errorf("%+v: %d, %t", test, n, limited)
		}
	}
}

// TestJobDeadline: an invalid duration is ignored.
func TestJobDeadline(t *testing.T) {
	for text, want := range map[string]time.Duration{"90": 90 * time.Second, "0": 0, "-1": 0, "": 0, "soon": 0} {
		pod := &corev1.Pod{}
		pod.Annotations = map[string]string{AnnotationJobDeadline: text}
		if limit, limited := JobDeadline(pod); limited != (want > 0) || limited && limit != want {
			t.Errorf("%q: %v, %t", text, limit, limited)
		}
	}
}
