package control

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

	"github.com/bulkhead-project/bulkhead/door/node/pods/internal/queue"
)

const (
	// workers is the number of pods reconciled concurrently. Ending a pod takes long, so it runs beside the workers.
	workers = 16
	// firstPause and lastPause bound the pauses between retries.
	firstPause = 250 * time.Millisecond
	lastPause  = time.Minute
	// waitPause is the time after which a waiting pod is reconciled even if Wake was not called.
	waitPause = 5 * time.Second
	// orphanPause is the time between the two checks that find a pod missing in the API server, if its deletion was not
	// seen.
	orphanPause = 5 * time.Second
)

// Options configures a Controller. All fields but Preempt, OrphanPause and Logger are required.
type Options struct {
	Source    Source
	Runner    Runner
	Reporter  Reporter
	Admission Admission
	Events    record.EventRecorder
	// Queue is the queue of this controller. NewQueue creates it before the controller can exist.
	Queue Queue
	// Preempt, if set, reports whether there will be room for a pod that was rejected for that reason. If end is not nil,
	// the caller must call it: it makes the room and returns when that is done. Preempt itself does not block.
	Preempt func(pod *corev1.Pod, reason string) (end func(context.Context), again bool)
	// OrphanPause defaults to orphanPause.
	OrphanPause time.Duration
	Logger      *slog.Logger
}

// Queue holds the UIDs of the pods that a Controller will reconcile.
type Queue = queue.Queue[types.UID]

// NewQueue returns an empty queue.
func NewQueue() Queue { return queue.New[types.UID](firstPause, lastPause) }

// Controller runs a node's pods.
type Controller struct {
	o     Options
	queue Queue
	ends  sync.WaitGroup
	// pauses are the retry pauses of failed ends. The queue cannot count them, because starting an end succeeds at once.
	pauses workqueue.TypedRateLimiter[types.UID]

	mu      sync.Mutex
	ending  map[types.UID]int64     // the shortest grace of the running ends
	seen    map[types.UID]time.Time // when a pod was first missing in the API server
	deleted map[types.UID]*int64    // the grace of pods that were seen to be deleted; nil is the pod's own
	// rejected maps each rejected pod to its last rejection.
	rejected map[types.UID]Rejection
}

// New returns a controller. The caller must call Run once.
func New(o Options) (*Controller, error) {
	o.OrphanPause = cmp.Or(o.OrphanPause, orphanPause)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	c := &Controller{
		o: o, queue: o.Queue,
		pauses: workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](firstPause, lastPause),
		ending: map[types.UID]int64{}, seen: map[types.UID]time.Time{}, deleted: map[types.UID]*int64{},
		rejected: map[types.UID]Rejection{},
	}
	if err := o.Source.Subscribe(c.Wake, c.sawDeletion); err != nil {
		return nil, fmt.Errorf("watch the pods: %w", err)
	}
	return c, nil
}

// Run works until ctx ends, and returns after all its work has stopped. The pods keep running.
func (c *Controller) Run(ctx context.Context) {
	defer c.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), c.o.Source.HasSynced) {
		return
	}
	for _, uid := range c.o.Runner.All() { // some may be unknown to the API server
		c.queue.Add(uid)
	}
	c.queue.Run(ctx, workers, c.reconcile, func(uid types.UID, err error) {
		c.o.Logger.Warn("retrying a pod", "uid", uid, "error", err)
	})
	c.ends.Wait()
}

// Wake reconciles a pod now.
func (c *Controller) Wake(uid types.UID) { c.queue.Add(uid) }

// sawDeletion notes that the source reported the pod's deletion.
func (c *Controller) sawDeletion(pod *corev1.Pod) {
	c.mu.Lock()
	c.deleted[pod.UID] = pod.DeletionGracePeriodSeconds
	c.mu.Unlock()
	c.queue.Add(pod.UID)
}
