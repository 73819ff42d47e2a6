package run

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/manager"
)

// TestUnhealthyIsToldOnce: a client that follows a run gets a repeated probe failure only once.
func TestUnhealthyIsToldOnce(t *testing.T) {
	t.Parallel()
	e := &entry{Pod: &manager.Pod{}, unhealthy: map[string]string{}}
	for i, step := range []struct {
		reason, container, message string
		again                      bool
	}{
		{"Unhealthy", "a", "refused", false},
		{"Unhealthy", "a", "refused", true},
		{"Unhealthy", "b", "refused", false},
		{"Failed", "a", "refused", false},
		{"Failed", "a", "refused", false},
		{"Unhealthy", "a", "timeout", false},
		{"Unhealthy", "a", "refused", false},
		{"ProbeWarning", "b", "refused", true},
	} {
		if got := e.expected(pod.Event{Reason: step.reason, Container: step.container, Message: step.message}); got != step.again {
			t.Errorf("step %d: %v", i, got)
		}
	}
}

// endedEntry returns the entry of a pod that ended under an earlier engine, with this status.
func endedEntry(t *testing.T, status corev1.PodStatus) *entry {
	t.Helper()
	rec := manager.Record{
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u-1", Labels: map[string]string{"app": "web"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
		},
		Ended: &status,
	}
	dir := filepath.Join(t.TempDir(), "pods")
	if err := os.MkdirAll(filepath.Join(dir, "u-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.WriteJSON(filepath.Join(dir, "u-1", "pod.json"), rec, 0o600, atomicfile.Volatile); err != nil {
		t.Fatal(err)
	}
	s := &server{}
	m, err := manager.Open(t.Context(), manager.Options{Dir: dir, VolumeDir: t.TempDir(), Door: s.newEntry})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	s.pods = m
	e, err := s.find("web")
	if err != nil {
		t.Fatal(err)
	}
	return e
}
