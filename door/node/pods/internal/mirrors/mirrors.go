// Package mirrors shows the static pods of a node in an API server. Each has a mirror pod there, which does not run and
// has the static pod's status. A deleted mirror is created again. A mirror of another pod is replaced, and a mirror
// without a pod is deleted. While the API server is unavailable, the work waits.
package mirrors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/door/node/pods/internal/queue"
	"github.com/bulkhead-project/bulkhead/internal/fault"
)

const (
	// workers is the number of mirrors that are handled concurrently.
	workers = 4
	// firstPause and lastPause bound the pauses after failures.
	firstPause = 250 * time.Millisecond
	lastPause  = 30 * time.Second
)

// Options configure a Controller. All but Logger are required.
type Options struct {
	Client kubernetes.Interface
	// Cache has the pods that the API server has bound to the node, including mirrors.
	Cache *control.Cache
	// Node returns the Node as the API server has it, or nil before the registration. It owns the mirrors.
	Node func() *corev1.Node
	// Pod returns the static pod of a name, or nil.
	Pod func(namespace, name string) *corev1.Pod
	// Known reports whether all static pods are known.
	Known func() bool
	// Changed is called for each mirror with a status that may be outdated, and for each deleted mirror. It must not
	// block.
	Changed func(mirror types.UID)
	Logger  *slog.Logger
}

// Controller keeps the mirrors up to date. It is safe for concurrent use.
type Controller struct {
	o     Options
	queue queue.Queue[types.NamespacedName]
}

// New returns a Controller. The caller calls Run once.
func New(o Options) (*Controller, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	k := &Controller{o: o, queue: queue.New[types.NamespacedName](firstPause, lastPause)}
	_, err := o.Cache.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { k.observe(object) },
		UpdateFunc: func(_, object any) { k.observe(object) },
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			k.observe(object)
			if pod, ok := object.(*corev1.Pod); ok && control.MirrorOf(pod) != "" {
				o.Changed(pod.UID)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("follow the mirrors: %w", err)
	}
	return k, nil
}

func (k *Controller) observe(object any) {
	if pod, ok := object.(*corev1.Pod); ok && control.MirrorOf(pod) != "" {
		k.Requeue(pod.Namespace, pod.Name)
	}
}

// Requeue requeues the mirror of a name, because its pod or its status has changed. It does not block.
func (k *Controller) Requeue(namespace, name string) {
	k.queue.Add(types.NamespacedName{Namespace: namespace, Name: name})
}

// Run keeps the mirrors up to date until ctx ends.
func (k *Controller) Run(ctx context.Context) {
	defer k.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), k.o.Cache.HasSynced, k.o.Known) {
		return
	}
	k.queue.Run(ctx, workers, k.reconcile, func(name types.NamespacedName, err error) {
		k.o.Logger.Warn("updating a mirror pod failed, retrying", "pod", name.String(), "error", err)
	})
}

// reconcile updates the mirror of a name. After a deletion, the rest follows when the cache has seen it.
func (k *Controller) reconcile(ctx context.Context, name types.NamespacedName) error {
	pod, there := k.o.Pod(name.Namespace, name.Name), k.o.Cache.Named(name.Namespace, name.Name)
	if there != nil && control.MirrorOf(there) == "" {
		if pod == nil {
			return nil
		}
		return errors.New("the API server has a pod of this name that is not a mirror (delete it)")
	}
	switch {
	case pod == nil && there == nil:
		return nil
	case there == nil:
		return k.create(ctx, pod)
	case pod == nil, there.DeletionTimestamp != nil, control.MirrorOf(there) != pod.UID, !k.owned(there):
		fault.Point("mirror.deleting")
		if err := k.o.Cache.Delete(ctx, there); err != nil {
			return err
		}
		fault.Point("mirror.deleted")
		return nil
	}
	k.o.Changed(there.UID)
	return nil
}

// owned reports whether the present Node owns a mirror.
func (k *Controller) owned(mirror *corev1.Pod) bool {
	node := k.o.Node()
	return node == nil || slices.ContainsFunc(mirror.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == node.UID })
}

// create creates a mirror.
func (k *Controller) create(ctx context.Context, pod *corev1.Pod) error {
	node := k.o.Node()
	if node == nil {
		return errors.New("the node is not registered yet")
	}
	mirror := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, Labels: pod.Labels, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: new(true),
			}},
		},
		Spec: pod.Spec,
	}
	for key, value := range pod.Annotations {
		mirror.Annotations[key] = value
	}
	mirror.Annotations[corev1.MirrorPodAnnotationKey] = string(pod.UID)
	fault.Point("mirror.making")
	if _, err := k.o.Client.CoreV1().Pods(pod.Namespace).Create(ctx, mirror, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the mirror: %w", err)
	}
	fault.Point("mirror.made")
	return nil
}
