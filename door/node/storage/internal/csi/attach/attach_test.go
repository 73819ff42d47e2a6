package attach

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/bulkhead-project/bulkhead/internal/broadcast"
)

const name = corev1.UniqueVolumeName("kubernetes.io/csi/d^h")

// world is a node with a volume that controllers attach.
type world struct {
	*Waiter
	client  *fake.Clientset
	fails   atomic.Bool // the API server fails requests for the Node
	changed broadcast.Broadcast

	mu    sync.Mutex
	node  *corev1.Node
	inUse bool
}

func newWorld() *world {
	w := &world{client: fake.NewClientset(nodeWith(false, false))}
	w.client.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return w.fails.Load(), nil, errors.New("the API server fails")
	})
	w.Waiter = New(Options{
		Client: w.client, Name: "node", Changed: w.changed.Next,
		Node: func() *corev1.Node {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.node
		},
		InUse: func(asked corev1.UniqueVolumeName) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.inUse && asked == name
		},
	})
	return w
}

// setNode sets the state of the Node in the watch and in the API server.
func (w *world) setNode(t *testing.T, inUse, attached bool) {
	t.Helper()
	w.setWatchedNode(inUse, attached)
	w.setServedNode(t, inUse, attached)
}

// setWatchedNode sets the Node of the watch only. Its VolumesInUse may be outdated and must not be used.
func (w *world) setWatchedNode(inUse, attached bool) {
	w.mu.Lock()
	w.node, w.inUse = nodeWith(true, attached), inUse
	w.mu.Unlock()
	w.changed.Notify()
}

// setServedNode sets the Node of the API server only.
func (w *world) setServedNode(t *testing.T, inUse, attached bool) {
	t.Helper()
	if err := w.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), nodeWith(inUse, attached), ""); err != nil {
		t.Fatal(err)
	}
}

// nodeWith returns a Node that uses the volume or has it attached.
func nodeWith(inUse, attached bool) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	node.Status.VolumesInUse = []corev1.UniqueVolumeName{"other"}
	if inUse {
		node.Status.VolumesInUse = append(node.Status.VolumesInUse, name)
	}
	if attached {
		node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: name}}
	}
	return node
}

// attachment returns the VolumeAttachment.
func attachment(status storagev1.VolumeAttachmentStatus) *storagev1.VolumeAttachment {
	id := fmt.Sprintf("csi-%x", sha256.Sum256([]byte("hdnode")))
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: id}, Status: status}
}

// TestWaits checks that Wait returns only after the node reports the volume in use, the Node of the watch and then of
// the API server list it as attached, and the VolumeAttachment confirms it.
func TestWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var got map[string]string
		var err error
		done := false
		go func() {
			got, err = w.Wait(t.Context(), name, "d", "h")
			done = true
		}()
		step := func(what string, do func()) {
			t.Helper()
			do()
			time.Sleep(pauses.Last + time.Second)
			synctest.Wait()
			if done {
				t.Fatalf("%s: %v, %v", what, got, err)
			}
		}
		step("nothing", func() {})
		step("attached, but not reported in use", func() { w.setNode(t, false, true) })
		step("in use, but not attached", func() { w.setNode(t, true, false) })
		step("in use, and attached only in the watch", func() { w.setWatchedNode(true, true) })
		step("the API server does not answer", func() { w.fails.Store(true); w.setServedNode(t, true, true) })
		step("no VolumeAttachment", func() { w.fails.Store(false) })
		step("not attached yet", func() { w.create(t, storagev1.VolumeAttachmentStatus{}) })
		w.update(t, storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"disk": "x"}})
		time.Sleep(pauses.Last)
		synctest.Wait()
		if !done || err != nil || got["disk"] != "x" {
			t.Errorf("%v, %v, %v", done, got, err)
		}
	})
}

// TestLateWatch checks that an attachment counts only if the API server's Node lists it after the volume was reported
// in use. The watch may still show the time before a detachment.
func TestLateWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.setWatchedNode(true, true)
		w.create(t, storagev1.VolumeAttachmentStatus{Attached: true})
		done := make(chan error, 1)
		go func() {
			_, err := w.Wait(t.Context(), name, "d", "h")
			done <- err
		}()
		for what, serve := range map[string]func(){
			"not used": func() { w.setServedNode(t, false, true) }, "not attached": func() { w.setServedNode(t, true, false) },
		} {
			serve()
			time.Sleep(pauses.Last + time.Second)
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("the API server's Node has it %s: %v", what, err)
			default:
			}
		}
		w.setServedNode(t, true, true)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (w *world) create(t *testing.T, s storagev1.VolumeAttachmentStatus) {
	t.Helper()
	if _, err := w.client.StorageV1().VolumeAttachments().Create(t.Context(), attachment(s), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) update(t *testing.T, s storagev1.VolumeAttachmentStatus) {
	t.Helper()
	if _, err := w.client.StorageV1().VolumeAttachments().Update(t.Context(), attachment(s), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestFails checks the error of a wait that times out or is cancelled.
func TestFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		do   func(*testing.T, *world)
		want string
	}{
		{"no node", func(*testing.T, *world) {}, "not registered"},
		{"not reported", func(t *testing.T, w *world) { w.setNode(t, false, false) }, "VolumesInUse"},
		{"not attached", func(t *testing.T, w *world) { w.setNode(t, true, false) }, "status of the Node: the volume is not attached"},
		{"attached only in the watch", func(_ *testing.T, w *world) { w.setWatchedNode(true, true) }, "VolumesInUse"},
		{"attached before it was used", func(t *testing.T, w *world) {
			w.setWatchedNode(true, true)
			w.setServedNode(t, true, false)
		}, "status of the Node: the volume is not attached"},
		{"no answer", func(_ *testing.T, w *world) {
			w.setWatchedNode(true, true)
			w.fails.Store(true)
		}, "get the Node"},
		{"no VolumeAttachment", func(t *testing.T, w *world) { w.setNode(t, true, true) }, "not found"},
		{"its attacher fails", func(t *testing.T, w *world) {
			w.setNode(t, true, true)
			w.create(t, storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "no\x1bdisk"}})
		}, "the volume is not attached: no?disk"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				tc.do(t, w)
				began := time.Now()
				_, err := w.Wait(t.Context(), name, "d", "h")
				if err == nil || !strings.Contains(err.Error(), tc.want) || time.Since(began) > wait {
					t.Errorf("%v after %v", err, time.Since(began))
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began = time.Now()
				if _, err := w.Wait(ctx, name, "d", "h"); err == nil || time.Since(began) > time.Second {
					t.Errorf("%v after %v", err, time.Since(began))
				}
			})
		})
	}
}
