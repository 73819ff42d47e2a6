package object

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// user is a Keeper without Run. The test triggers its rounds and passes it the Nodes of the watch.
type user struct {
	*Keeper
	client *fake.Clientset
	used   []corev1.UniqueVolumeName
	fail   error  // of the next patches, which are applied anyway
	during func() // called in the middle of a patch
}

func newUser(t *testing.T) *user {
	t.Helper()
	u := &user{client: fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "first"}})}
	u.client.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if u.during != nil {
			u.during()
		}
		if u.fail == nil {
			return false, nil, nil
		}
		_, _, err := clienttesting.ObjectReaction(u.client.Tracker())(a)
		return true, nil, errors.Join(u.fail, err)
	})
	var err error
	u.Keeper, err = New(Options{
		Client: u.client, Name: "node", InUse: func() []corev1.UniqueVolumeName { return u.used },
		Status: func(context.Context) corev1.NodeStatus { return corev1.NodeStatus{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// expectReported runs one round, and checks that the API server has the used volumes.
func (u *user) expectReported(t *testing.T, used ...corev1.UniqueVolumeName) {
	t.Helper()
	u.used = used
	if err := u.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := get(t, u.client).Status.VolumesInUse; !slices.Equal(got, used) || u.InUse("v") != slices.Contains(used, "v") {
		t.Fatalf("the API server has %v, want %v; v counts as reported: %t", got, used, u.InUse("v"))
	}
}

// TestLateWatch: a watch that lags behind the API server's answers does not affect the report of volumes in use.
func TestLateWatch(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.expectReported(t, "v")
	u.store(get(t, u.client)) // the last Node of the watch
	u.expectReported(t)
	u.used = []corev1.UniqueVolumeName{"v"}
	if u.InUse("v") {
		t.Error("a volume that was reported as unused counts as used")
	}
	u.expectReported(t, "v")
	u.expectReported(t, "v", "w")
	u.expectReported(t, "w")
}

// TestEarlierUse: a new process does not trust the watch about volumes that an earlier one reported.
func TestEarlierUse(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	late := get(t, u.client).DeepCopy()
	late.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"}
	u.store(late)
	if u.InUse("v") {
		t.Error("an earlier process's report counts")
	}
	u.expectReported(t, "v")
}

// TestUseEnds: a volume does not count as reported while it is being removed from the list, nor after a patch with an
// unknown outcome.
func TestUseEnds(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.expectReported(t, "v")
	u.store(get(t, u.client))
	u.used, u.fail = nil, errors.New("no answer")
	u.during = func() { // another pod arrives meanwhile
		u.used = []corev1.UniqueVolumeName{"v"}
		if u.InUse("v") {
			t.Error("a removed volume counts as reported")
		}
	}
	if err := u.sync(t.Context()); !errors.Is(err, u.fail) || u.InUse("v") {
		t.Errorf("%v, %t", err, u.InUse("v"))
	}
	u.fail, u.during = nil, nil
	u.expectReported(t, "v") // the watch still shows this list
}

// TestAnotherNode: after the Node is created again, no volume counts as reported.
func TestAnotherNode(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.expectReported(t, "v")
	u.store(get(t, u.client))
	next := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "second"}}
	next.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"} // never reported to it
	nodes := corev1.SchemeGroupVersion.WithResource("nodes")
	if err := errors.Join(u.client.Tracker().Delete(nodes, "", "node"), u.client.Tracker().Add(next.DeepCopy())); err != nil {
		t.Fatal(err)
	}
	u.store(next)
	if u.InUse("v") {
		t.Error("a report to another Node counts")
	}
	u.expectReported(t, "v")
	u.store(nil)
	if u.InUse("v") {
		t.Error("a report to a deleted Node counts")
	}
}

// TestNotUsing: without drivers the Node's volumes in use stay unchanged.
func TestNotUsing(t *testing.T) {
	t.Parallel()
	there := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	there.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"}
	client := fake.NewClientset(there)
	k, err := New(Options{
		Client: client, Name: "node", Status: func(context.Context) corev1.NodeStatus { return corev1.NodeStatus{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if node := get(t, client); len(node.Status.VolumesInUse) != 1 {
		t.Errorf("%v", node.Status.VolumesInUse)
	}
}
