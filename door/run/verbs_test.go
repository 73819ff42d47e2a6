package run

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/pod/manager"
)

// asked returns a server, the entry of a running pod of the image "i", run in the environment "the first", and a
// request in the environment "the second".
func asked(t *testing.T, body string) (*server, *entry, *http.Request) {
	t.Helper()
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
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.SetPathValue("ref", "web")
	r.Header.Set(api.EnvironmentHeader, api.Environment{"HTTP_PROXY": "the second"}.Encode())
	return s, e, r
}

// TestStartOfARunningPod: a refused start does not change the pod's environment.
func TestStartOfARunningPod(t *testing.T) {
	t.Parallel()
	s, e, r := asked(t, "")
	r.SetPathValue("verb", "start")
	if _, err := s.verb(r); !errors.Is(err, errdefs.ErrConflict) {
		t.Errorf("start of a pod that has not ended: %v", err)
	}
	if got := e.environment("i")("HTTP_PROXY"); got != "the first" {
		t.Errorf("it reads the environment of %s", got)
	}
}

// TestDebugLeavesTheEnvironment: images that the pod itself names are pulled in the environment of the command that
// runs it, also if a debugger uses them.
func TestDebugLeavesTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		request string
		want    map[string]string // by image
	}{
		{`{}`, map[string]string{"i": "the first", "tools": "the first"}},
		{`{"image":"i"}`, map[string]string{"i": "the first"}},
		{`{"image":"tools"}`, map[string]string{"i": "the first", "tools": "the second", "other": "the first"}},
	} {
		s, e, r := asked(t, tt.request)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.debug(r.WithContext(ctx)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", tt.request, err)
		}
		for name, want := range tt.want {
			if got := e.environment(name)("HTTP_PROXY"); got != want {
				t.Errorf("%s: image %s is pulled in the environment of %s", tt.request, name, got)
			}
		}
	}
}
