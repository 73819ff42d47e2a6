package nodeinfo

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/csi/driver"
)

// inWorld runs a test with a Publisher and a fake API server with the node.
func inWorld(t *testing.T, objects []runtime.Object, test func(*testing.T, *fake.Clientset, *Publisher)) {
	t.Helper()
	t.Parallel()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "n1", Labels: map[string]string{"theirs": "x"}}}
	client := fake.NewClientset(append(objects, node)...)
	synctest.Test(t, func(t *testing.T) {
		publisher := New(client, "node", nil)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		all.Go(func() { publisher.Run(ctx) })
		test(t, client, publisher)
	})
}

// csiNode returns the CSINode of the API server.
func csiNode(t *testing.T, client *fake.Clientset) *storagev1.CSINode {
	t.Helper()
	got, err := client.StorageV1().CSINodes().Get(t.Context(), "node", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func theNode(t *testing.T, client *fake.Clientset) *corev1.Node {
	t.Helper()
	got, err := client.CoreV1().Nodes().Get(t.Context(), "node", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestPublish checks that a driver is in the CSINode, which the Node owns, and in the Node's labels and annotation. After
// its removal only the labels stay. Other drivers are not affected.
func TestPublish(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, client *fake.Clientset, publisher *Publisher) {
		facts := driver.Facts{NodeID: "id", MaxVolumes: 7, Topology: map[string]string{"topology.x/zone": "a"}}
		if err := publisher.Add(t.Context(), "one", facts); err != nil {
			t.Fatal(err)
		}
		if err := publisher.Add(t.Context(), "two", driver.Facts{NodeID: "id2"}); err != nil {
			t.Fatal(err)
		}
		got := csiNode(t, client)
		if len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != "n1" || len(got.Spec.Drivers) != 2 {
			t.Fatalf("CSINode: %+v", got)
		}
		one, two := got.Spec.Drivers[0], got.Spec.Drivers[1]
		if one.Name != "one" || one.NodeID != "id" || *one.Allocatable.Count != 7 || one.TopologyKeys[0] != "topology.x/zone" ||
			two.Name != "two" || two.Allocatable != nil {
			t.Errorf("drivers: %+v", got.Spec.Drivers)
		}
		node := theNode(t, client)
		if node.Labels["topology.x/zone"] != "a" || node.Labels["theirs"] != "x" || node.Annotations[nodeID] != `{"one":"id","two":"id2"}` {
			t.Errorf("node: %+v", node.ObjectMeta)
		}
		publisher.Remove("one")
		synctest.Wait()
		if got := csiNode(t, client); len(got.Spec.Drivers) != 1 || got.Spec.Drivers[0].Name != "two" {
			t.Errorf("drivers: %+v", got.Spec.Drivers)
		}
		publisher.Remove("two")
		synctest.Wait()
		if node := theNode(t, client); node.Annotations[nodeID] != "" || node.Labels["topology.x/zone"] != "a" {
			t.Errorf("node: %+v", node.ObjectMeta)
		}
	})
}

// TestChanged checks that a driver with a new ID is removed and added again, because the API does not allow a change.
func TestChanged(t *testing.T) {
	before := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: storagev1.CSINodeSpec{
		Drivers: []storagev1.CSINodeDriver{{Name: "theirs", NodeID: "t"}, {Name: "one", NodeID: "old"}},
	}}
	inWorld(t, []runtime.Object{before}, func(t *testing.T, client *fake.Clientset, publisher *Publisher) {
		synctest.Wait() // the Publisher sends no requests meanwhile
		client.PrependReactor("update", "csinodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
			got, err := client.Tracker().Get(storagev1.SchemeGroupVersion.WithResource("csinodes"), "", "node")
			if err != nil {
				return true, nil, err
			}
			for _, next := range a.(clienttesting.UpdateAction).GetObject().(*storagev1.CSINode).Spec.Drivers {
				for _, now := range got.(*storagev1.CSINode).Spec.Drivers {
					if now.Name == next.Name && now.NodeID != next.NodeID {
						return true, nil, errors.New("immutable")
					}
				}
			}
			return false, nil, nil
		})
		if err := publisher.Add(t.Context(), "one", driver.Facts{NodeID: "new"}); err != nil {
			t.Fatal(err)
		}
		if d := csiNode(t, client).Spec.Drivers; len(d) != 2 || d[0].Name != "theirs" || d[1].NodeID != "new" {
			t.Errorf("drivers: %+v", d)
		}
	})
}

// TestCollision checks that a driver is refused and not published if its topology contradicts a label, or if the API
// server refuses its label. Other drivers are still published.
func TestCollision(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, client *fake.Clientset, publisher *Publisher) {
		err := publisher.Add(t.Context(), "bad", driver.Facts{NodeID: "i", Topology: map[string]string{"theirs": "y"}})
		if err == nil || !strings.Contains(err.Error(), `"theirs":"y" but existing label is "theirs":"x"`) {
			t.Errorf("collision: %v", err)
		}
		synctest.Wait() // the Publisher sends no requests meanwhile
		client.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if strings.Contains(string(a.(clienttesting.PatchAction).GetPatch()), "node-role") {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node", errors.New("not for you"))
			}
			return false, nil, nil
		})
		topology := map[string]string{"node-role.kubernetes.io/x": "y"}
		if err := publisher.Add(t.Context(), "worse", driver.Facts{NodeID: "i", Topology: topology}); !apierrors.IsForbidden(err) {
			t.Errorf("forbidden: %v", err)
		}
		if err := publisher.Add(t.Context(), "good", driver.Facts{NodeID: "i"}); err != nil {
			t.Error(err)
		}
		if d := csiNode(t, client).Spec.Drivers; len(d) != 1 || d[0].Name != "good" {
			t.Errorf("drivers: %+v", d)
		}
	})
}

// TestFailures checks that failures are retried while the caller waits, and that a cancelled call leaves nothing.
func TestFailures(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, client *fake.Clientset, publisher *Publisher) {
		var down atomic.Bool
		down.Store(true)
		synctest.Wait() // the Publisher sends no requests meanwhile
		client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			if down.Load() {
				return true, nil, errors.New("down")
			}
			return false, nil, nil
		})
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := publisher.Add(short, "one", driver.Facts{NodeID: "i"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("down: %v", err)
		}
		go func() { time.Sleep(time.Minute); down.Store(false) }()
		if err := publisher.Add(t.Context(), "two", driver.Facts{NodeID: "i"}); err != nil {
			t.Error(err)
		}
		if d := csiNode(t, client).Spec.Drivers; len(d) != 1 || d[0].Name != "two" {
			t.Errorf("drivers: %+v", d)
		}
	})
}

// TestNodeAgain checks that a CSINode that was deleted with its Node is created again for the new Node.
func TestNodeAgain(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, client *fake.Clientset, publisher *Publisher) {
		if err := publisher.Add(t.Context(), "one", driver.Facts{NodeID: "i"}); err != nil {
			t.Fatal(err)
		}
		if err := client.StorageV1().CSINodes().Delete(t.Context(), "node", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := client.CoreV1().Nodes().Delete(t.Context(), "node", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "n2"}}
		if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		publisher.Wake()
		synctest.Wait()
		if got := csiNode(t, client); got.OwnerReferences[0].UID != "n2" || len(got.Spec.Drivers) != 1 {
			t.Errorf("CSINode: %+v", got)
		}
		if got := theNode(t, client); got.Annotations[nodeID] != `{"one":"i"}` {
			t.Errorf("node: %+v", got.ObjectMeta)
		}
	})
}
