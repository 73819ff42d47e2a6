// Package object maintains the Node object of this host in an API server. It creates the Node, reports its status,
// renews its lease, and creates it again after a deletion.
package object

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/apimachinery/lease"

	"github.com/bulkhead-project/bulkhead/internal/retry"
)

const (
	// leaseDuration and renewEvery are the kubelet's defaults.
	leaseDuration = 40 * time.Second
	renewEvery    = 10 * time.Second
	// measureEvery is the interval of measurements. reportEvery is the time after which an unchanged status is reported again.
	measureEvery = 10 * time.Second
	reportEvery  = 5 * time.Minute
)

// pauses are the pauses between retries.
var pauses = retry.Pauses{First: 200 * time.Millisecond, Last: 7 * time.Second}

// Options configures a Keeper. Client, Name and Status are required.
type Options struct {
	Client kubernetes.Interface
	Name   string
	// Labels and Taints are set when the node registers.
	Labels map[string]string
	Taints []corev1.Taint
	// Annotations are kept on the Node.
	Annotations map[string]string
	// Status measures the node. It returns the whole status except the times of conditions.
	Status func(ctx context.Context) corev1.NodeStatus
	// InUse returns the attached volumes that the node's pods use, sorted. It must not block. If it is nil, the Node's
	// VolumesInUse stay unchanged.
	InUse func() []corev1.UniqueVolumeName
	// PodCIDR, if set, passes the pod CIDRs to the runtime, separated by commas.
	PodCIDR func(ctx context.Context, cidrs string) error
	// Clash, if set, is called when another host reports its status as this node.
	Clash func(*corev1.Node)
	// Events, if set, receives events about the Node.
	Events record.EventRecorder
	// Changed, if set, is called when the API server has changed the Node, and when InUse has changed. It must not block.
	Changed func()
	Logger  *slog.Logger
}

// Keeper maintains a Node.
type Keeper struct {
	o        Options
	informer cache.SharedIndexInformer
	wake     chan struct{}
	cidrs    string // last passed to the runtime; used only by Run

	mu       sync.Mutex
	node     *corev1.Node // as the API server had it last; nil if absent
	last     *corev1.Node // like node, but kept after a deletion
	reported time.Time
	use      use
	// otherBoots counts how often in a row the Node showed another boot ID after this process had reported its own.
	otherBoots int
	clashed    bool // the clash was reported
}

// New returns a Keeper. The caller must call Run once.
func New(o Options) (*Keeper, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	k := &Keeper{o: o, wake: make(chan struct{}, 1)}
	selector := fields.OneTermEqualSelector("metadata.name", o.Name).String()
	k.informer = informers.NewFilteredNodeInformer(o.Client, 0, nil, func(lo *metav1.ListOptions) { lo.FieldSelector = selector })
	_, err := k.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { k.store(object.(*corev1.Node)) },
		UpdateFunc: func(_, object any) { k.store(object.(*corev1.Node)) },
		DeleteFunc: func(any) { k.store(nil) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch the Node: %w", err)
	}
	return k, nil
}

// ReportVolumes sets InUse, Changed and Annotations of the Options. It is called before Run.
func (k *Keeper) ReportVolumes(inUse func() []corev1.UniqueVolumeName, changed func(), annotations map[string]string) {
	k.o.InUse, k.o.Changed, k.o.Annotations = inUse, changed, annotations
}

// Last returns the last known Node, also after its deletion. It returns nil before the Node existed. The caller must
// not change it.
func (k *Keeper) Last() *corev1.Node {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// Node returns the Node that the API server had last. It returns nil before that and after a deletion. The caller must
// not change it.
func (k *Keeper) Node() *corev1.Node {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.node
}

// Measure makes Run measure the node now.
func (k *Keeper) Measure() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// store keeps the Node that the API server sent, or nil after a deletion.
func (k *Keeper) store(node *corev1.Node) {
	k.mu.Lock()
	gone := node == nil && k.node != nil
	moved := cidrsOf(node) != cidrsOf(k.node)
	if k.node = node; node != nil {
		k.last = node
	}
	if gone || node != nil && node.UID != k.use.node {
		k.use = use{} // of another Node
	}
	k.mu.Unlock()
	if gone {
		k.o.Logger.Warn("the Node was deleted and is created again", "node", k.o.Name)
	}
	if gone || moved {
		k.Measure()
	}
	if k.o.Changed != nil {
		k.o.Changed()
	}
}

// Run maintains the Node until ctx ends. It calls registered once, when the Node first exists.
func (k *Keeper) Run(ctx context.Context, registered func()) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { k.informer.RunWithContext(ctx) })
	first := sync.OnceFunc(func() {
		registered()
		all.Go(func() { k.renew(ctx) })
	})
	pauses.Loop(ctx, measureEvery, k.wake, func() error {
		err := k.sync(ctx)
		if err == nil {
			first()
		}
		return err
	}, func(err error) { k.o.Logger.Warn("retrying to report the Node", "node", k.o.Name, "error", err) })
}

// renew renews the lease until ctx ends.
func (k *Keeper) renew(ctx context.Context) {
	lease.NewController(k.leaseClock(ctx), k.o.Client, k.o.Name, int32(leaseDuration/time.Second), nil, renewEvery,
		k.o.Name, corev1.NamespaceNodeLease, k.setOwner).Run(ctx)
}

// setOwner makes the Node the owner of the lease.
func (k *Keeper) setOwner(l *coordinationv1.Lease) error {
	node := k.Node()
	if node == nil || len(l.OwnerReferences) > 0 {
		return nil
	}
	l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	return nil
}
