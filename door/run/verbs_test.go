package run

import (
	"errors"
	"net/http"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/pod/manager"
)

// TestStartOfARunningPod: a start that is refused leaves the pod the environment of the
// command that runs it.
func TestStartOfARunningPod(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pods")
	s := &server{}
	m, err := manager.Open(t.Context(), manager.Options{Dir: dir, VolumeDir: t.TempDir(), Door: s.newEntry})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	s.pods = m
	added, err := m.Add(manager.Record{Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u-1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}}, manager.Objects{})
	if err != nil {
		t.Fatal(err)
	}
	e := entryOf(added)
	e.reads(func(string) string { return "the first" })
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.SetPathValue("ref", "web")
	r.SetPathValue("verb", "start")
	r.Header.Set(api.EnvironmentHeader, api.Environment{"HTTP_PROXY": "the second"}.Encode())
	if _, err := s.verb(r); !errors.Is(err, manager.ErrConflict) {
		t.Errorf("start of a pod that has not ended: %v", err)
	}
	if got := e.getenv("HTTP_PROXY"); got != "the first" {
		t.Errorf("it reads the environment of %s", got)
	}
}
