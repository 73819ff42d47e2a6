package manager

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/config"
)

// slowCRI is a runtime with RunPodSandbox calls that fail when release is closed.
type slowCRI struct {
	internalapi.RuntimeService
	internalapi.ImageManagerService
	release chan struct{}
}

var errSlow = errors.New("no sandbox today")

func (slowCRI) Close(context.Context) error { return nil }

func (slowCRI) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return nil, errSlow
}

func (slowCRI) ImageStatus(context.Context, *runtimeapi.ImageSpec, bool) (*runtimeapi.ImageStatusResponse, error) {
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: "here"}}, nil
}

func (slowCRI) GetContainerEvents(
	ctx context.Context, _ chan *runtimeapi.ContainerEventResponse, established func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	established(nil)
	<-ctx.Done()
	return nil
}

func (slowCRI) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return nil, nil
}

func (slowCRI) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return nil, nil
}

func (s slowCRI) RunPodSandbox(context.Context, *runtimeapi.PodSandboxConfig, string) (string, error) {
	<-s.release
	return "", errSlow
}

// TestAbandonedPodThatIsSlowToEnd: a pod of a lost client is removed at its end, also if that takes longer than any
// wait.
func TestAbandonedPodThatIsSlowToEnd(t *testing.T) {
	tests := []struct {
		name    string
		rec     Record
		abandon func(*Manager, *Pod)
		removed bool
	}{
		{"the client has disconnected", Record{Foreground: true, Remove: true}, func(m *Manager, e *Pod) { m.StopAndRemoveAll([]*Pod{e}) }, true},
		{"one without --rm", Record{Foreground: true}, func(m *Manager, e *Pod) { m.StopAndRemoveAll([]*Pod{e}) }, true},
		{"and the manager too", Record{Foreground: true, Remove: true}, func(_ *Manager, e *Pod) { e.endDetached() }, true},
		{"which keeps one without --rm", Record{Foreground: true}, func(_ *Manager, e *Pod) { e.endDetached() }, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &Manager{o: Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}, pods: map[types.UID]*Pod{}}
				m.ctx, m.stop = context.WithCancel(t.Context())
				defer m.Close()

				spec := &corev1.Pod{}
				spec.Name, spec.Namespace, spec.UID = "slow", "default", "u"
				spec.Spec.Containers = []corev1.Container{{Name: "main", Image: "here:1"}}
				runtime := slowCRI{release: make(chan struct{})}
				e := &Pod{m: m, dir: filepath.Join(m.o.Dir, "u"), rec: test.rec, op: make(chan struct{}, 1), done: make(chan struct{})}
				e.door = fakeDoor{&world{}, e}
				e.original, e.rec.Pod = spec, spec
				if err := os.Mkdir(e.dir, 0o700); err != nil {
					t.Fatal(err)
				}
				p, err := pod.New(pod.Options{
					Options: config.Options{Pod: spec, VolumeDir: filepath.Join(e.dir, "volumes")}, Runtime: runtime, Images: runtime,
				})
				if err != nil {
					t.Fatal(err)
				}
				e.p, m.pods["u"] = p, e
				e.Run()
				synctest.Wait()

				test.abandon(m, e)
				if len(m.All()) != 1 || e.HasEnded() {
					t.Fatal("it has ended before its sandbox was made")
				}
				close(runtime.release)
				synctest.Wait()
				if !e.HasEnded() {
					t.Error("it has not ended")
				}
				if removed := len(m.All()) == 0; removed != test.removed {
					t.Errorf("removed: %v, want %v", removed, test.removed)
				}
			})
		})
	}
}

// TestAbandonedTogether: the pods of a lost client end concurrently.
func TestAbandonedTogether(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		w.runtime.dying = 4 * time.Second
		for _, name := range []string{"a", "b", "c"} {
			w.run(m, Record{Pod: spec(name)})
		}
		before := time.Now()
		if err := m.StopAndRemoveAll(m.All()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(before); took >= 2*w.runtime.dying || len(m.All()) != 0 {
			t.Errorf("%d pods are left after %v", len(m.All()), took)
		}
	})
}

// TestOneSubscription: a manager has one subscription for all its pods, and each pod gets the event of its end.
func TestOneSubscription(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		subscriptions := func() int {
			w.runtime.mu.Lock()
			defer w.runtime.mu.Unlock()
			return len(w.runtime.listeners)
		}
		a, b := w.run(m, Record{Pod: spec("a")}), w.run(m, Record{Pod: spec("b")})
		if n := subscriptions(); n != 1 {
			t.Errorf("%d subscriptions for two pods", n)
		}
		for _, p := range []*Pod{a, b} {
			if err := p.Stop(t.Context(), noGrace()); err != nil {
				t.Error(err)
			}
			ended(t.Context(), t, p)
		}
		synctest.Wait()
		if n := subscriptions(); n != 0 {
			t.Errorf("%d subscriptions for no pod", n)
		}
	})
}
