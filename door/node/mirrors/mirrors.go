// Package mirrors shows an API server the static pods of a node: each has a mirror there, a pod that
// nobody runs, whose status is the static pod's. It is made again when it was deleted, replaced when it is that of
// another pod, and goes with what it shows. While the API server is away nothing is done, and nothing is lost.
package mirrors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/bulkhead-project/bulkhead/door/node/pods"
	"github.com/bulkhead-project/bulkhead/internal/fault"
)

const (
	// workers are how many mirrors are worked on at once.
	workers = 4
	// firstPause and lastPause bound the pauses of what fails.
	firstPause = 250 * time.Millisecond
	lastPause  = 30 * time.Second
)

// Options are a Keeper's. All but Logger are required.
type Options struct {
	Client kubernetes.Interface
	// Cache has the pods that the API server has bound to the node, mirrors among them.
	Cache *pods.Cache
	// Node is the Node as the API server has it, which owns the mirrors; nil before that is known.
	Node func() *corev1.Node
	// Pod is the static pod of a name that the API server is shown, nil for none.
	Pod func(namespace, name string) *corev1.Pod
	// Known tells whether all static pods are known.
	Known func() bool
	// Changed is told of each mirror whose status may not be that of its pod, and of each that is gone. It must not
	// block.
	Changed func(mirror types.UID)
	Logger  *slog.Logger
}

// Keeper keeps the mirrors. Its methods may be called at once.
type Keeper struct {
	o     Options
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]
}

// New makes a Keeper, whose owner calls Run once.
func New(o Options) (*Keeper, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstPause, lastPause)
	k := &Keeper{o: o, queue: workqueue.NewTypedRateLimitingQueue(limiter)}
	_, err := o.Cache.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { k.saw(object) },
		UpdateFunc: func(_, object any) { k.saw(object) },
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			k.saw(object)
			if pod, ok := object.(*corev1.Pod); ok && pods.MirrorOf(pod) != "" {
				o.Changed(pod.UID)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("follow the mirrors: %w", err)
	}
	return k, nil
}

func (k *Keeper) saw(object any) {
	if pod, ok := object.(*corev1.Pod); ok && pods.MirrorOf(pod) != "" {
		k.Look(pod.Namespace, pod.Name)
	}
}

// Look has the mirror of a name be looked at: its pod is new, or another, or gone, or its status has
// changed. It does not block.
func (k *Keeper) Look(namespace, name string) {
	k.queue.Add(types.NamespacedName{Namespace: namespace, Name: name})
}

// Run keeps the mirrors until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	defer k.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), k.o.Cache.HasSynced, k.o.Known) {
		return
	}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for k.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	k.queue.ShutDown()
	all.Wait()
}

func (k *Keeper) next(ctx context.Context) bool {
	name, over := k.queue.Get()
	if over || ctx.Err() != nil {
		return false
	}
	defer k.queue.Done(name)
	if err := k.reconcile(ctx, name); err != nil {
		if ctx.Err() == nil {
			k.o.Logger.Warn("updating a mirror pod failed, retrying", "pod", name.String(), "error", err)
		}
		k.queue.AddRateLimited(name)
		return true
	}
	k.queue.Forget(name)
	return true
}

// reconcile makes the mirror of a name be what it is to be. What its deletion leaves to do is done when the
// cache has heard of it.
func (k *Keeper) reconcile(ctx context.Context, name types.NamespacedName) error {
	pod, there := k.o.Pod(name.Namespace, name.Name), k.o.Cache.Named(name.Namespace, name.Name)
	if there != nil && pods.MirrorOf(there) == "" {
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
	case pod == nil, there.DeletionTimestamp != nil, pods.MirrorOf(there) != pod.UID, !k.owned(there):
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

// owned tells whether a mirror belongs to the Node that there is now.
func (k *Keeper) owned(mirror *corev1.Pod) bool {
	node := k.o.Node()
	return node == nil || slices.ContainsFunc(mirror.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == node.UID })
}

// create makes a mirror.
func (k *Keeper) create(ctx context.Context, pod *corev1.Pod) error {
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
