// Package object keeps the Node of a machine in an API server: it makes it, tells what the machine is
// and whether it is ready, renews its lease, and makes it again when it was deleted.
package object

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/apimachinery/lease"
)

const (
	// leaseDuration and renewEvery are a kubelet's.
	leaseDuration = 40 * time.Second
	renewEvery    = 10 * time.Second
	// lookEvery is how often the machine is measured, tellEvery after what time it is told of although
	// nothing has changed.
	lookEvery = 10 * time.Second
	tellEvery = 5 * time.Minute
	// firstPause and lastPause bound the pauses of what fails.
	firstPause = 200 * time.Millisecond
	lastPause  = 7 * time.Second
)

// Options are a Keeper's. Client, Name and Status are required.
type Options struct {
	Client kubernetes.Interface
	Name   string
	// Labels and Taints are those that the node registers with.
	Labels map[string]string
	Taints []corev1.Taint
	// Annotations are those that the Node has for as long as it is this node's.
	Annotations map[string]string
	// Status measures the machine: all that a Node's status says but the times of conditions.
	Status func(ctx context.Context) corev1.NodeStatus
	// InUse are the attached volumes that the node's pods use, in order. It must not block. Nil leaves the Node's VolumesInUse
	// as they are.
	InUse func() []corev1.UniqueVolumeName
	// PodCIDR tells the runtime of the addresses that the node's pods have, with commas; nil is nobody.
	PodCIDR func(ctx context.Context, cidrs string) error
	// Clash is called when another machine tells of itself as this node; nil is nobody.
	Clash func(*corev1.Node)
	// Events are told what becomes of the Node; nil is nobody.
	Events record.EventRecorder
	// Changed is called when the API server tells of another Node, and when InUse has changed; it must not block. Nil is nobody.
	Changed func()
	Logger  *slog.Logger
}

// Keeper keeps a Node.
type Keeper struct {
	o        Options
	informer cache.SharedIndexInformer
	wake     chan struct{}
	cidrs    string // that the runtime has been told; of Run alone

	mu   sync.Mutex
	node *corev1.Node // as the API server had it last, nil for none
	last *corev1.Node // node, also after it was deleted
	told time.Time
	use  use
	// strange is how often in turn the Node told of another boot than this one, after it had been
	// told of this one.
	strange int
	clashed bool // that was reported
}

// New makes a Keeper, whose owner calls Run once.
func New(o Options) (*Keeper, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	k := &Keeper{o: o, wake: make(chan struct{}, 1)}
	selector := fields.OneTermEqualSelector("metadata.name", o.Name).String()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, lo metav1.ListOptions) (runtime.Object, error) {
			lo.FieldSelector = selector
			return o.Client.CoreV1().Nodes().List(ctx, lo)
		},
		WatchFuncWithContext: func(ctx context.Context, lo metav1.ListOptions) (watch.Interface, error) {
			lo.FieldSelector = selector
			return o.Client.CoreV1().Nodes().Watch(ctx, lo)
		},
	}
	k.informer = cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, o.Client), &corev1.Node{}, 0, nil)
	_, err := k.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { k.take(object.(*corev1.Node)) },
		UpdateFunc: func(_, object any) { k.take(object.(*corev1.Node)) },
		DeleteFunc: func(any) { k.take(nil) },
	})
	if err != nil {
		return nil, fmt.Errorf("follow the node: %w", err)
	}
	return k, nil
}

// Last is the Node as it was last, also while the API server has none because somebody deleted it; nil before it was there.
// It must not be changed.
func (k *Keeper) Last() *corev1.Node {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// Node is the Node as the API server had it last, nil before that and when it was deleted. It must not be changed.
func (k *Keeper) Node() *corev1.Node {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.node
}

// Look has the machine measured now.
func (k *Keeper) Look() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// take notes what the API server has.
func (k *Keeper) take(node *corev1.Node) {
	k.mu.Lock()
	gone := node == nil && k.node != nil
	moved := rangesOf(node) != rangesOf(k.node)
	if k.node = node; node != nil {
		k.last = node
	}
	if gone || node != nil && node.UID != k.use.node {
		k.use = use{} // of another Node
	}
	k.mu.Unlock()
	if gone {
		k.o.Logger.Warn("the node was deleted, and is made again", "node", k.o.Name)
	}
	if gone || moved {
		k.Look()
	}
	if k.o.Changed != nil {
		k.o.Changed()
	}
}

// Run keeps the Node until ctx ends. registered is called when it is there for the first time.
func (k *Keeper) Run(ctx context.Context, registered func()) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { k.informer.RunWithContext(ctx) })
	pause, first := firstPause, true
	for {
		wait := lookEvery
		if err := k.sync(ctx); err != nil {
			if ctx.Err() != nil {
				return
			}
			k.o.Logger.Warn("the node is told of again", "node", k.o.Name, "error", err)
			wait, pause = pause, min(2*pause, lastPause)
		} else {
			pause = firstPause
			if first {
				first = false
				registered()
				all.Go(func() { k.renew(ctx) })
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-k.wake:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// renew renews the lease until ctx ends.
func (k *Keeper) renew(ctx context.Context) {
	lease.NewController(k.leaseClock(ctx), k.o.Client, k.o.Name, int32(leaseDuration/time.Second), nil, renewEvery,
		k.o.Name, corev1.NamespaceNodeLease, k.own).Run(ctx)
}

// own has the lease go with the Node.
func (k *Keeper) own(l *coordinationv1.Lease) error {
	node := k.Node()
	if node == nil || len(l.OwnerReferences) > 0 {
		return nil
	}
	l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	return nil
}
