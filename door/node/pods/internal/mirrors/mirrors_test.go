package mirrors

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
)

const (
	first  = types.UID("0123456789abcdef0123456789abcdef")
	second = types.UID("fedcba9876543210fedcba9876543210")
)

// world is a Keeper between a fake API server and a host with one static pod.
type world struct {
	t      *testing.T
	client *fake.Clientset
	k      *Controller

	mu      sync.Mutex
	pod     *corev1.Pod  // the static pod
	node    *corev1.Node // as it is registered
	changed []types.UID
	down    bool
}

func static(uid types.UID) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p-node", Namespace: "default", UID: uid, Labels: map[string]string{"l": "v"},
			Annotations: map[string]string{
				control.SourceAnnotation: "file", control.HashAnnotation: string(uid), control.SeenAnnotation: "then", "own": "kept",
			},
		},
		Spec: corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "c"}}},
	}
}

func inWorld(t *testing.T, test func(*testing.T, *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "n1"}}
		w := &world{t: t, client: fake.NewClientset(), pod: static(first), node: node}
		made := 0
		w.client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.down {
				return true, nil, errors.New("the API server is down")
			}
			made++
			a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).UID = types.UID(rune('a' + made - 1))
			return false, nil, nil
		})
		c, err := control.NewCache(w.client, "node")
		if err != nil {
			t.Fatal(err)
		}
		w.k, err = New(Options{
			Client: w.client, Cache: c, Known: func() bool { return true },
			Node: func() *corev1.Node { w.mu.Lock(); defer w.mu.Unlock(); return w.node },
			Pod: func(namespace, name string) *corev1.Pod {
				w.mu.Lock()
				defer w.mu.Unlock()
				if w.pod == nil || w.pod.Namespace != namespace || w.pod.Name != name {
					return nil
				}
				return w.pod
			},
			Changed: func(uid types.UID) { w.mu.Lock(); defer w.mu.Unlock(); w.changed = append(w.changed, uid) },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		all.Go(func() { c.RunWithContext(ctx) })
		all.Go(func() { w.k.Run(ctx) })
		time.Sleep(time.Second) // the cache is polled
		synctest.Wait()
		test(t, w)
	})
}

// set changes the host and requeues the mirror.
func (w *world) set(f func()) {
	w.t.Helper()
	w.mu.Lock()
	f()
	w.mu.Unlock()
	w.k.Requeue("default", "p-node")
	time.Sleep(time.Second)
	synctest.Wait()
}

// mirror returns the mirror in the API server, or nil.
func (w *world) mirror() *corev1.Pod {
	w.t.Helper()
	got, err := w.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), "default", "p-node")
	if err != nil {
		return nil
	}
	return got.(*corev1.Pod)
}

// TestMirror checks that a mirror is valid for NodeRestriction, that its status is reported, and that it is deleted
// with its pod.
func TestMirror(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.set(func() {})
		m := w.mirror()
		if m == nil {
			t.Fatal("no mirror")
		}
		a := m.Annotations
		if a[corev1.MirrorPodAnnotationKey] != string(first) || a[control.HashAnnotation] != string(first) ||
			a[control.SourceAnnotation] != "file" || a[control.SeenAnnotation] == "" || a["own"] != "kept" || m.Labels["l"] != "v" {
			t.Errorf("annotations %v, labels %v", a, m.Labels)
		}
		if o := m.OwnerReferences; len(o) != 1 || o[0].Kind != "Node" || o[0].UID != "n1" || o[0].Controller == nil || !*o[0].Controller {
			t.Errorf("owners: %v", o)
		}
		if len(w.changed) == 0 || w.changed[0] != m.UID {
			t.Errorf("statuses changed: %v, want %s", w.changed, m.UID)
		}
		w.set(func() { w.pod = nil })
		if m := w.mirror(); m != nil {
			t.Errorf("the mirror outlives its pod: %v", m)
		}
		if last := len(w.changed) - 1; w.changed[last] != m.UID || last < 1 {
			t.Errorf("no change for the deleted mirror: %v", w.changed)
		}
	})
}

// TestMirrorIsMadeAgain checks that a mirror is replaced if it was deleted, is being deleted, shows another pod, or
// belongs to an earlier Node.
func TestMirrorIsMadeAgain(t *testing.T) {
	resource := corev1.SchemeGroupVersion.WithResource("pods")
	for name, change := range map[string]func(w *world, m *corev1.Pod) error{
		"deleted": func(w *world, _ *corev1.Pod) error { return w.client.Tracker().Delete(resource, "default", "p-node") },
		"being deleted": func(w *world, m *corev1.Pod) error {
			m.DeletionTimestamp = new(metav1.Now())
			return w.client.Tracker().Update(resource, m, "default")
		},
		"of another pod": func(w *world, _ *corev1.Pod) error { w.set(func() { w.pod = static(second) }); return nil },
		"no hash": func(w *world, m *corev1.Pod) error {
			m.Annotations[corev1.MirrorPodAnnotationKey] = "x"
			return w.client.Tracker().Update(resource, m, "default")
		},
		"another Node": func(w *world, _ *corev1.Pod) error { w.set(func() { w.node.UID = "n2" }); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.set(func() {})
				before := w.mirror()
				if err := change(w, before.DeepCopy()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				m := w.mirror()
				if m == nil || m.UID == before.UID || control.MirrorOf(m) != w.pod.UID || m.OwnerReferences[0].UID != w.node.UID {
					t.Errorf("mirror: %v", m)
				}
			})
		})
	}
}

// TestMirrorWaits checks that creating a mirror is retried while the Node is not registered or the API server is down.
func TestMirrorWaits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		node := w.node
		w.set(func() { w.node, w.down = nil, true })
		time.Sleep(time.Hour)
		w.set(func() { w.node = node })
		time.Sleep(time.Hour)
		if w.mirror() != nil {
			t.Fatal("a mirror exists")
		}
		w.set(func() { w.down = false })
		time.Sleep(lastPause)
		synctest.Wait()
		if w.mirror() == nil {
			t.Error("no retry")
		}
	})
}

// TestOthersPod checks that a user's pod with the mirror's name stays, and that a mirror without a pod is deleted.
func TestOthersPod(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		other := static("u")
		other.Annotations = nil
		stray := static("s")
		stray.Name, stray.Annotations = "stray", map[string]string{corev1.MirrorPodAnnotationKey: string(second)}
		for _, p := range []*corev1.Pod{other, stray} {
			if err := w.client.Tracker().Add(p); err != nil {
				t.Fatal(err)
			}
		}
		w.set(func() {})
		if m := w.mirror(); m == nil || m.UID != "u" {
			t.Errorf("mirror: %v", m)
		}
		if _, err := w.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), "default", "stray"); err == nil {
			t.Error("the mirror without a pod still exists")
		}
	})
}
