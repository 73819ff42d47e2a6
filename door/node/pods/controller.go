package pods

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
)

const (
	// workers are how many pods are looked at at once. What takes long, the end of a pod, does
	// not hold one up.
	workers = 16
	// firstPause and lastPause bound the pauses of what fails.
	firstPause = 250 * time.Millisecond
	lastPause  = time.Minute
	// waitPause is after what time a pod that waits is looked at although nobody has woken it.
	waitPause = 5 * time.Second
	// orphanPause is what lies between the two sightings of a pod that the API server does not
	// have and whose deletion was not seen.
	orphanPause = 5 * time.Second
)

// Options are a controller's. All but Preempt, OrphanPause and Logger are required.
type Options struct {
	Source    Source
	Runner    Runner
	Reporter  Reporter
	Admission Admission
	Events    record.EventRecorder
	// Preempt, if set, tells whether there will be room for a pod that was not admitted for that reason. end, if not nil, makes
	// it, and returns when it is made. Preempt itself does not block.
	Preempt func(pod *corev1.Pod, reason string) (end func(context.Context), again bool)
	// OrphanPause is orphanPause if 0.
	OrphanPause time.Duration
	Logger      *slog.Logger
}

// Controller runs a node's pods.
type Controller struct {
	o     Options
	queue workqueue.TypedRateLimitingInterface[types.UID]
	ends  sync.WaitGroup
	// pauses are those of ends that fail, which the queue knows nothing of: to begin one is no failure.
	pauses workqueue.TypedRateLimiter[types.UID]

	mu      sync.Mutex
	ending  map[types.UID]int64     // the shortest grace of the ends under way
	seen    map[types.UID]time.Time // when a pod was first seen that the API server does not have
	deleted map[types.UID]*int64    // the grace of pods whose deletion was seen, nil for their own
	// rejected are the pods that were rejected, and why last.
	rejected map[types.UID]Rejection
}

// New makes a controller, whose owner calls Run once.
func New(o Options) (*Controller, error) {
	o.OrphanPause = cmp.Or(o.OrphanPause, orphanPause)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Controller{
		o:      o,
		queue:  workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](firstPause, lastPause)),
		pauses: workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](firstPause, lastPause),
		ending: map[types.UID]int64{}, seen: map[types.UID]time.Time{}, deleted: map[types.UID]*int64{},
		rejected: map[types.UID]Rejection{},
	}
	if err := o.Source.Follow(c.Wake, c.sawDeletion); err != nil {
		return nil, fmt.Errorf("follow the pods: %w", err)
	}
	return c, nil
}

// Run works until ctx ends, and returns when nothing is done any more. The pods run on.
func (c *Controller) Run(ctx context.Context) {
	defer c.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), c.o.Source.HasSynced) {
		return
	}
	for _, uid := range c.o.Runner.All() { // some may be unknown to the API server
		c.queue.Add(uid)
	}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	all.Wait()
	c.ends.Wait()
}

// Wake has a pod looked at now.
func (c *Controller) Wake(uid types.UID) { c.queue.Add(uid) }

// next works on one pod. It is false when there is nothing more to do.
func (c *Controller) next(ctx context.Context) bool {
	uid, over := c.queue.Get()
	if over || ctx.Err() != nil {
		return false
	}
	defer c.queue.Done(uid)
	if err := c.reconcile(ctx, uid); err != nil {
		if ctx.Err() == nil {
			c.o.Logger.Warn("a pod is tried again", "uid", uid, "error", err)
		}
		c.queue.AddRateLimited(uid)
		return true
	}
	c.queue.Forget(uid)
	return true
}

// sawDeletion notes that the source has told of the pod's deletion.
func (c *Controller) sawDeletion(pod *corev1.Pod) {
	c.mu.Lock()
	c.deleted[pod.UID] = pod.DeletionGracePeriodSeconds
	c.mu.Unlock()
	c.queue.Add(pod.UID)
}
