package control

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// byUID names the index of the cache.
const byUID = "uid"

// Cache holds the pods that are bound to a node. It is safe for concurrent use.
type Cache struct {
	client kubernetes.Interface
	node   string
	cache.SharedIndexInformer
}

var _ Source = (*Cache)(nil)

// NewCache returns the cache of a node's pods. The caller must call RunWithContext, which returns when its context
// ends.
func NewCache(client kubernetes.Interface, node string) (*Cache, error) {
	informer := informers.NewFilteredPodInformer(client, metav1.NamespaceAll, 0, cache.Indexers{
		byUID: func(object any) ([]string, error) {
			pod, ok := object.(*corev1.Pod)
			if !ok {
				return nil, errors.New("not a pod")
			}
			return []string{string(pod.UID)}, nil
		},
	}, func(o *metav1.ListOptions) { o.FieldSelector = onNode(node) })
	// Managed fields make up half of an object, and no code here reads them.
	err := informer.SetTransform(func(object any) (any, error) {
		if pod, ok := object.(*corev1.Pod); ok {
			pod.ManagedFields = nil
		}
		return object, nil
	})
	return &Cache{client, node, informer}, err
}

func onNode(node string) string { return fields.OneTermEqualSelector("spec.nodeName", node).String() }

// Subscribe implements Source. It skips mirror pods, which the node does not run.
func (c *Cache) Subscribe(changed func(types.UID), gone func(*corev1.Pod)) error {
	_, err := c.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if pod := object.(*corev1.Pod); MirrorOf(pod) == "" {
				changed(pod.UID)
			}
		},
		UpdateFunc: func(before, after any) {
			old, pod := before.(*corev1.Pod), after.(*corev1.Pod)
			if old.UID != pod.UID { // replaced by a pod of the same name
				notifyGone(old, gone)
			}
			if MirrorOf(pod) == "" {
				changed(pod.UID)
			}
		},
		DeleteFunc: func(object any) { notifyGone(object, gone) },
	})
	return err
}

// notifyGone calls gone with a pod that left the cache, unwrapping a tombstone.
func notifyGone(object any, gone func(*corev1.Pod)) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if pod, ok := object.(*corev1.Pod); ok && MirrorOf(pod) == "" {
		gone(pod)
	}
}

// Get returns the pod with a UID, or nil. The caller must not change it.
func (c *Cache) Get(uid types.UID) *corev1.Pod {
	found, err := c.GetIndexer().ByIndex(byUID, string(uid))
	if err != nil || len(found) == 0 {
		return nil
	}
	return found[0].(*corev1.Pod)
}

// Named returns the pod with a name, or nil. The caller must not change it.
func (c *Cache) Named(namespace, name string) *corev1.Pod {
	found, there, err := c.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !there {
		return nil
	}
	return found.(*corev1.Pod)
}

// Delete implements Source.
func (c *Cache) Delete(ctx context.Context, pod *corev1.Pod) error {
	err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if apierrors.IsConflict(err) {
		// Either another pod has the name by now, or a client changed this one meanwhile.
		if there, unknown := c.Live(ctx, pod.Namespace, pod.Name, pod.UID); unknown == nil && !there {
			return nil
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// Live asks the API server whether a pod with that UID is on the node. It lists, because a node may not get a pod that
// does not exist.
func (c *Cache) Live(ctx context.Context, namespace, name string, uid types.UID) (bool, error) {
	selector := onNode(c.node) + "," + fields.OneTermEqualSelector("metadata.name", name).String()
	list, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return false, err
	}
	for i := range list.Items {
		if list.Items[i].UID == uid {
			return true, nil
		}
	}
	return false, nil
}
