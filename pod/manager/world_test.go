package manager

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/pod"
)

// world is a directory and a runtime for successive managers.
type world struct {
	t       *testing.T
	dir     string
	runtime *fakeCRI
	refuse  error // of Configure
	cluster bool  // has its own Jobs

	mu     sync.Mutex
	events []string
	held   int // supervised pods
	taken  map[types.UID]bool
}

// inWorld runs a test on a synthetic clock, so that every wait ends immediately.
func inWorld(t *testing.T, test func(*testing.T, *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		test(t, &world{t: t, dir: t.TempDir(), runtime: newFake()})
	})
}

type fakeDoor struct {
	w *world
	p *Pod
}

// setReserved records that a door reserves resources for a pod, or releases them.
func (w *world) setReserved(uid types.UID, taken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.taken == nil {
		w.taken = map[types.UID]bool{}
	}
	if w.taken[uid] = taken; !taken {
		delete(w.taken, uid)
	}
}

// holds returns the pods with reserved resources.
func (w *world) holds() []types.UID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.taken))
}

func (d fakeDoor) Configure(o *pod.Options) error {
	o.Runtime, o.Images = d.w.runtime, d.w.runtime
	d.w.setReserved(o.Pod.UID, true)
	return d.w.refuse
}

func (d fakeDoor) Release() { d.w.setReserved(d.p.UID(), false) }

func (d fakeDoor) Event(e pod.Event) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	d.w.events = append(d.w.events, e.Reason)
}

// open returns the next manager, which closes with the test.
func (w *world) open() *Manager {
	w.t.Helper()
	m, err := Open(w.t.Context(), Options{
		Dir: filepath.Join(w.dir, "pods"), VolumeDir: filepath.Join(w.dir, "volumes"), Runtime: w.runtime, Jobs: !w.cluster,
		Door: func(p *Pod) Door { return fakeDoor{w, p} },
		Hold: func() func() { w.hold(1); return func() { w.hold(-1) } },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(m.Close)
	return m
}

func (w *world) hold(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held += n
}

// spec returns a pod of one container with this command.
func spec(name string, command ...string) *corev1.Pod {
	grace := int64(5)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("0123456789-" + name), CreationTimestamp: metav1.Now()},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "c", Image: "here:1", ImagePullPolicy: corev1.PullIfNotPresent, Command: command}},
		},
	}
}

// run adds a pod and waits until it is idle.
func (w *world) run(m *Manager, rec Record) *Pod {
	w.t.Helper()
	p, err := m.Add(rec, Objects{})
	if err != nil {
		w.t.Fatal(err)
	}
	p.Run()
	synctest.Wait()
	return p
}

// find returns the pod with a name in the next manager.
func (w *world) find(m *Manager, name string) *Pod {
	w.t.Helper()
	p, err := m.Find(name)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func noGrace() *int64 { return new(int64) }

func ended(ctx context.Context, t *testing.T, p *Pod) {
	t.Helper()
	select {
	case <-p.Ended():
	case <-ctx.Done():
		t.Fatalf("%s does not end: %+v", p.Key(), p.Status())
	}
}
