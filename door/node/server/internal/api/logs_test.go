package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testcri"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/manager"
)

// scarce is a runtime with a single image.
type scarce struct{ *testcri.Runtime }

func (s scarce) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	if image.GetImage() != "here:1" {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return s.Runtime.ImageStatus(ctx, image, verbose)
}

func (scarce) PullImage(context.Context, *runtimeapi.ImageSpec, *runtimeapi.AuthConfig, *runtimeapi.PodSandboxConfig) (string, error) {
	return "", errors.New("no such image")
}

type door struct{ runtime scarce }

func (d door) Configure(o *pod.Options) error {
	o.Runtime, o.Images, o.FailFast = d.runtime, d.runtime, false
	return nil
}
func (door) Event(pod.Event) {}
func (door) Release()        {}

// managed are the pods of a manager.
type managed struct{ *manager.Manager }

func (m managed) Find(_, name string) *manager.Pod {
	for _, p := range m.All() {
		if p.Name() == name {
			return p
		}
	}
	return nil
}
func (m managed) Pods() []*manager.Pod { return m.All() }
func (m managed) Status(uid types.UID) (s corev1.PodStatus, told bool) {
	p, err := m.Get(uid)
	if err != nil {
		return s, false
	}
	return p.Status(), true
}

// open returns a manager of the pods in a directory.
func open(t *testing.T, dir string, runtime scarce) managed {
	t.Helper()
	m, err := manager.Open(t.Context(), manager.Options{
		Dir: filepath.Join(dir, "pods"), VolumeDir: filepath.Join(dir, "volumes"), Runtime: runtime, ByUID: true,
		Door: func(*manager.Pod) manager.Door { return door{runtime} },
	})
	if err != nil {
		t.Fatal(err)
	}
	return managed{m}
}

// add adds a running pod "job" and a pod "late" that waits for its image.
func (m managed) add(t *testing.T) {
	t.Helper()
	for name, image := range map[string]string{"job": "here:1", "late": "nowhere:1"} {
		p, err := m.Add(manager.Record{Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("00000000-" + name)},
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{
				{Name: "c", Image: image, ImagePullPolicy: corev1.PullIfNotPresent},
			}},
		}}, manager.Objects{})
		if err != nil {
			t.Fatal(err)
		}
		p.Run()
	}
	time.Sleep(time.Second)
	synctest.Wait()
}

// TestLogsOfPods checks that a container's log is readable while it runs and after its end, also by the next process. A
// container that never ran has no log.
func TestLogsOfPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, runtime := t.TempDir(), scarce{testcri.New(0)}
		pods := open(t, dir, runtime)
		defer func() { pods.Close() }()
		ask := func(when, path string, code int, text string) {
			t.Helper()
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/containerLogs/default/"+path, http.NoBody)
			New(pods, nil, nil, slog.New(slog.DiscardHandler)).Handler().ServeHTTP(w, r)
			if w.Code != code || !strings.Contains(w.Body.String(), text) {
				t.Errorf("%s: %d, %q", when, w.Code, w.Body)
			}
		}
		pods.add(t)
		job := pods.Find("default", "job")
		log := filepath.Join(job.Dir(), "logs", "c", "0.log")
		if err := os.WriteFile(log, []byte("2026-01-02T03:04:05.000000006Z stdout F done\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		ask("running", "job/c", http.StatusOK, "done\n")
		ask("image not found", "late/c", http.StatusBadRequest, "is waiting to start: ImagePullBackOff")
		ask("unknown container", "job/d", http.StatusNotFound, `container "d" not found in pod "job"`)
		id, _ := job.Container("c")
		if err := runtime.StopContainer(t.Context(), id, 0); err != nil {
			t.Fatal(err)
		}
		<-job.Ended()
		ask("terminated", "job/c", http.StatusOK, "done\n")
		late := pods.Find("default", "late")
		if err := late.Stop(t.Context(), new(int64)); err != nil {
			t.Fatal(err)
		}
		ask("terminated without a run", "late/c", http.StatusBadRequest, `container "c" in pod "late" is terminated`)
		pods.Close()
		pods = open(t, dir, runtime)
		ask("terminated under an earlier process", "job/c", http.StatusOK, "done\n")
		ask("previous run", "job/c?previous=true", http.StatusBadRequest, "not found")
		ask("terminated without a run under an earlier process", "late/c", http.StatusBadRequest, "is terminated")
	})
}
