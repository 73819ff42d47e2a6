package object

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/bulkhead-project/bulkhead/internal/test/testclock"
)

// inWorld runs a Keeper against a fake API server. ready holds the status of the Ready condition.
func inWorld(t *testing.T, client *fake.Clientset, ready *atomic.Value, test func(*testing.T, *Keeper)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, err := New(Options{
			Client: client, Name: "node", Labels: map[string]string{"a": "b"},
			Taints: []corev1.Taint{{Key: "t", Effect: corev1.TaintEffectNoSchedule}},
			Status: func(context.Context) corev1.NodeStatus {
				now := corev1.NodeCondition{Type: corev1.NodeReady, Status: ready.Load().(corev1.ConditionStatus), Reason: "own"}
				return corev1.NodeStatus{Conditions: []corev1.NodeCondition{now}}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		all.Go(func() { k.Run(ctx, func() {}) })
		time.Sleep(time.Second)
		synctest.Wait()
		test(t, k)
	})
}

// value returns an atomic value that holds s.
func value(s corev1.ConditionStatus) *atomic.Value {
	v := &atomic.Value{}
	v.Store(s)
	return v
}

func get(t *testing.T, client *fake.Clientset) *corev1.Node {
	t.Helper()
	got, err := client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", "node")
	if err != nil {
		t.Fatal(err)
	}
	return got.(*corev1.Node)
}

// TestRegisters: the Node is created with its labels and taints. Its lease of 40 seconds is renewed every ten seconds
// and has the Node as its owner.
func TestRegisters(t *testing.T) {
	client, ready := fake.NewClientset(), value(corev1.ConditionTrue)
	var renewals atomic.Int32
	client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		renewals.Add(1)
		return false, nil, nil
	})
	inWorld(t, client, ready, func(t *testing.T, _ *Keeper) {
		node := get(t, client)
		if node.Labels["a"] != "b" || len(node.Spec.Taints) != 1 || node.Status.Conditions[0].Status != corev1.ConditionTrue {
			t.Errorf("node: %+v", node)
		}
		before := renewals.Load()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := renewals.Load() - before; n < 5 || n > 7 {
			t.Errorf("renewed %d times in a minute", n)
		}
		lease, err := client.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), "node", metav1.GetOptions{})
		if err != nil || time.Since(lease.Spec.RenewTime.Time) > 11*time.Second || *lease.Spec.LeaseDurationSeconds != 40 ||
			len(lease.OwnerReferences) != 1 {
			t.Errorf("lease: %+v, %v", lease, err)
		}
	})
}

// TestMadeAgain: a deleted Node is created again at once.
func TestMadeAgain(t *testing.T) {
	client, ready := fake.NewClientset(), value(corev1.ConditionTrue)
	inWorld(t, client, ready, func(t *testing.T, k *Keeper) {
		if err := client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", "node"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if node := get(t, client); node.Labels["a"] != "b" || k.Node() == nil {
			t.Errorf("node: %+v", node)
		}
	})
}

// TestOthersStay: an existing Node keeps the conditions, labels and taints of others. An unchanged status is reported
// only every five minutes.
func TestOthersStay(t *testing.T) {
	there := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{"theirs": "x"}}}
	there.Spec.Taints = []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoExecute}}
	there.Status.Conditions = []corev1.NodeCondition{{Type: "Theirs", Status: corev1.ConditionTrue}}
	client, ready := fake.NewClientset(there), value(corev1.ConditionTrue)
	var patches atomic.Int32
	client.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() == "status" {
			patches.Add(1)
		}
		return false, nil, nil
	})
	inWorld(t, client, ready, func(t *testing.T, _ *Keeper) {
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		node := get(t, client)
		if node.Labels["theirs"] != "x" || node.Labels["a"] != "b" || node.Spec.Taints[0].Key != "theirs" || len(node.Status.Conditions) != 2 {
			t.Errorf("node: %+v", node)
		}
		if patches.Load() != 1 {
			t.Errorf("reported %d times in four minutes", patches.Load())
		}
		ready.Store(corev1.ConditionFalse)
		time.Sleep(measureEvery)
		synctest.Wait()
		if patches.Load() != 2 {
			t.Errorf("reported a change %d times", patches.Load()-1)
		}
	})
}

// TestUsed: the Node gets the node's annotation, also if it existed before, and reports its volumes in use at once.
func TestUsed(t *testing.T) {
	there := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Annotations: map[string]string{"theirs": "x"}}}
	client := fake.NewClientset(there)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var used atomic.Pointer[[]corev1.UniqueVolumeName]
		used.Store(&[]corev1.UniqueVolumeName{})
		k, err := New(Options{
			Client: client, Name: "node", Annotations: map[string]string{"own": "true"},
			Status: func(context.Context) corev1.NodeStatus { return corev1.NodeStatus{} },
			InUse:  func() []corev1.UniqueVolumeName { return *used.Load() },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		all.Go(func() { k.Run(ctx, func() {}) })
		time.Sleep(time.Second)
		for _, want := range [][]corev1.UniqueVolumeName{{"a"}, {"a", "b"}, {"b"}, {}} {
			used.Store(&want)
			k.Measure()
			synctest.Wait()
			if node := get(t, client); len(node.Status.VolumesInUse) != len(want) || node.Annotations["own"] != "true" ||
				node.Annotations["theirs"] != "x" {
				t.Errorf("node: %+v, %v", node.Annotations, node.Status.VolumesInUse)
			}
		}
	})
}

// TestFailures: while the API server does not answer, it is asked again with pauses of at most seven seconds.
func TestFailures(t *testing.T) {
	client, ready := fake.NewClientset(), value(corev1.ConditionTrue)
	var asked atomic.Int32
	var down atomic.Bool
	down.Store(true)
	client.PrependReactor("create", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked.Add(1)
		if down.Load() {
			return true, nil, errors.New("down")
		}
		return false, nil, nil
	})
	inWorld(t, client, ready, func(t *testing.T, _ *Keeper) {
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := asked.Load(); n < 40 || n > 60 {
			t.Errorf("%d requests", n)
		}
		down.Store(false)
		time.Sleep(pauses.Last)
		synctest.Wait()
		get(t, client)
	})
}

// TestClash: another host with the same node name is reported once. An earlier boot of this host is not reported.
func TestClash(t *testing.T) {
	there := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	there.Status.NodeInfo.BootID = "of yesterday"
	client := fake.NewClientset(there)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clashes := 0
		k, err := New(Options{
			Client: client, Name: "node", Clash: func(*corev1.Node) { clashes++ },
			Status: func(context.Context) corev1.NodeStatus {
				return corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "of today"}}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		all.Go(func() { k.Run(ctx, func() {}) })
		time.Sleep(time.Minute)
		synctest.Wait()
		if clashes != 0 {
			t.Error("a clash with the node itself is reported")
		}
		for range 6 {
			node := get(t, client).DeepCopy()
			node.Status.NodeInfo.BootID = "of another"
			if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""); err != nil {
				t.Fatal(err)
			}
			time.Sleep(measureEvery)
			synctest.Wait() // the next round runs before the other host reports again
		}
		if clashes != 1 {
			t.Errorf("%d clashes were reported", clashes)
		}
	})
}

// TestLeaseGoesForward: each renewal time of a lease is later than the one before, also if the clock is set back or an
// earlier process had a faster clock.
func TestLeaseGoesForward(t *testing.T) {
	now := time.Now()
	f := &forward{}
	last := f.advance(now)
	for i, by := range []time.Duration{0, -time.Hour, -time.Hour, -2 * time.Hour, time.Hour, 0, -time.Hour} {
		passed := time.Duration(i+1) * renewEvery
		next := f.advance(testclock.Set(now.Add(passed), by))
		if grown := next.Sub(last); grown < renewEvery {
			t.Errorf("the clock is set by %v: the time advances by %v", by, grown)
		}
		last = next
	}
	client, ready := fake.NewClientset(), value(corev1.ConditionTrue)
	ahead := metav1.NewMicroTime(time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)) // a synctest bubble starts an hour before
	_, err := client.CoordinationV1().Leases("kube-node-lease").Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: coordinationv1.LeaseSpec{RenewTime: &ahead},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	inWorld(t, client, ready, func(t *testing.T, _ *Keeper) {
		before := ahead.Time
		for range 6 {
			time.Sleep(renewEvery + time.Second)
			synctest.Wait()
			lease, err := client.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), "node", metav1.GetOptions{})
			if err != nil || !lease.Spec.RenewTime.After(before) {
				t.Fatalf("renewed at %v, after %v, %v", lease.Spec.RenewTime, before, err)
			}
			before = lease.Spec.RenewTime.Time
		}
	})
}

// TestLast: a deleted Node is still available to code that decides about pods meanwhile.
func TestLast(t *testing.T) {
	client, ready := fake.NewClientset(), value(corev1.ConditionTrue)
	inWorld(t, client, ready, func(t *testing.T, k *Keeper) {
		client.PrependReactor("create", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("not now")
		})
		if err := client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", "node"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if last := k.Last(); k.Node() != nil || last == nil || last.Labels["a"] != "b" {
			t.Errorf("now %v, last %v", k.Node(), last)
		}
	})
}
