package control

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
	"k8s.io/client-go/tools/record"
)

// errPassing is a temporary error.
var errPassing = errors.New("a moment's fault")

// fakes is a fake Runner, Reporter and Admission.
type fakes struct {
	mu       sync.Mutex
	pods     map[types.UID]*corev1.Pod
	calls    []string
	fail     map[string]error // errors by the name of the call
	times    map[string]int   // how often each call fails; 0 means always
	hold     map[types.UID]chan struct{}
	graces   []int64
	failed   map[types.UID]string
	rejects  *Rejection
	preempts func(reason string) (end func(context.Context), again bool) // called with mu held; nil makes no room
	released map[types.UID]bool
	ended    map[types.UID]bool // existing pods, by whether they have ended
	passing  map[types.UID]bool // ended pods that are to run again
}

func (m *fakes) call(name string, uid types.UID) error {
	m.calls = append(m.calls, name+" "+string(uid))
	err := m.fail[name]
	if err != nil && m.times[name] > 0 {
		if m.times[name]--; m.times[name] == 0 {
			delete(m.fail, name)
		}
	}
	return err
}

// count returns how often something was called.
func (m *fakes) count(call string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.calls {
		if c == call {
			n++
		}
	}
	return n
}

func (m *fakes) Run(_ context.Context, p *corev1.Pod) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("run", p.UID); err != nil {
		return err
	}
	m.pods[p.UID] = p
	return nil
}

func (m *fakes) Update(_ context.Context, p *corev1.Pod) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.call("update", p.UID)
}

func (m *fakes) Stop(ctx context.Context, uid types.UID, grace int64) error {
	m.mu.Lock()
	err := m.call("stop", uid)
	m.graces = append(m.graces, grace)
	hold := m.hold[uid]
	m.mu.Unlock()
	if err == nil && hold == nil {
		m.die(uid)
	}
	if err != nil || hold == nil {
		return err
	}
	select {
	case <-hold:
		m.die(uid)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *fakes) Remove(_ context.Context, uid types.UID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("remove", uid); err != nil {
		return err
	}
	delete(m.pods, uid)
	return nil
}

// die ends a pod.
func (m *fakes) die(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended[uid] = true
}

func (m *fakes) Has(uid types.UID) bool { return m.Spec(uid) != nil }

func (m *fakes) HasEnded(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[uid] != nil && m.ended[uid]
}

func (m *fakes) Forget(types.UID) {}

func (m *fakes) Spec(uid types.UID) *corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[uid]
}

func (m *fakes) All() (all []types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid := range m.pods {
		all = append(all, uid)
	}
	return all
}

func (m *fakes) Report(_ context.Context, p *corev1.Pod) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.call("report", p.UID)
}

func (m *fakes) Changed(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.call("changed", uid)
}

func (m *fakes) Fail(_ context.Context, p *corev1.Pod, reason, _ string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed[p.UID] = reason
	return m.call("fail", p.UID)
}

func (m *fakes) Revivable(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ended[uid] && m.passing[uid]
}

func (m *fakes) Revive(_ context.Context, uid types.UID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("revive", uid); err != nil {
		return err
	}
	delete(m.ended, uid)
	delete(m.passing, uid)
	return nil
}

func (m *fakes) Admit(*corev1.Pod) *Rejection {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rejects
}

func (m *fakes) preempt(_ *corev1.Pod, reason string) (end func(context.Context), again bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.preempts == nil {
		return nil, false
	}
	return m.preempts(reason)
}

func (m *fakes) Release(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.released[uid] = true
}

// world is a controller between a fake API server and fakes.
type world struct {
	*fakes
	t      *testing.T
	client *fake.Clientset
	cache  *Cache
	c      *Controller
	answer func(clienttesting.Action) (bool, runtime.Object, error) // overrides the answers to requests about pods; guarded by mu
}

// inWorld runs a test on a fake clock. The fakes start with the given pods.
func inWorld(t *testing.T, there []*corev1.Pod, test func(*testing.T, *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, client: fake.NewClientset(), fakes: &fakes{
			pods: map[types.UID]*corev1.Pod{}, fail: map[string]error{}, times: map[string]int{},
			hold: map[types.UID]chan struct{}{}, failed: map[types.UID]string{}, released: map[types.UID]bool{},
			ended: map[types.UID]bool{}, passing: map[types.UID]bool{},
		}}
		for _, p := range there {
			w.pods[p.UID] = p
		}
		w.client.PrependReactor("*", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.answer == nil {
				return false, nil, nil
			}
			return w.answer(a)
		})
		var err error
		if w.cache, err = NewCache(w.client, "node"); err != nil {
			t.Fatal(err)
		}
		w.c, err = New(Options{
			Source: w.cache, Runner: w.fakes, Reporter: w.fakes, Admission: w.fakes, Queue: NewQueue(),
			Events: record.NewFakeRecorder(1 << 20), Preempt: w.preempt,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		all.Go(func() { w.cache.RunWithContext(ctx) })
		all.Go(func() { w.c.Run(ctx) })
		time.Sleep(time.Second) // so that the cache's sync is noticed
		synctest.Wait()
		test(t, w)
	})
}

// pod returns a pod that is bound to the node.
func pod(name string, uid types.UID) *corev1.Pod {
	grace := int64(30)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: uid},
		Spec:       corev1.PodSpec{NodeName: "node", TerminationGracePeriodSeconds: &grace, RestartPolicy: corev1.RestartPolicyNever},
	}
}

// create creates a pod in the API server, and waits until the controller is idle.
func (w *world) create(p *corev1.Pod) {
	w.t.Helper()
	if err := w.client.Tracker().Add(p); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// terminate deletes a pod with a grace, as a client does.
func (w *world) terminate(p *corev1.Pod, grace int64) {
	w.t.Helper()
	next := p.DeepCopy()
	next.DeletionTimestamp, next.DeletionGracePeriodSeconds = new(metav1.Now()), &grace
	if err := w.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), next, next.Namespace); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// drop removes a pod from the API server.
func (w *world) drop(p *corev1.Pod) {
	w.t.Helper()
	if err := w.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), p.Namespace, p.Name); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// has reports whether the API server has a pod with that UID.
func (w *world) has(p *corev1.Pod) bool {
	w.t.Helper()
	got, err := w.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), p.Namespace, p.Name)
	return err == nil && got.(*corev1.Pod).UID == p.UID
}

// answers sets the API server's answers to requests about pods. f is called with the lock of fakes held.
func (w *world) answers(verb string, f func() (runtime.Object, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetVerb() != verb {
			return false, nil, nil
		}
		object, err := f()
		return object != nil || err != nil, object, err
	}
}
