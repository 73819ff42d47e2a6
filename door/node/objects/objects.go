// Package objects has the ConfigMaps and Secrets that a node's pods refer to, and no others: each
// is watched by itself, as long as a pod refers to it. That is what a node may do. So are their RuntimeClasses. Services, of
// which pods get variables, are watched in the namespaces of the node's pods.
package objects

import (
	"context"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/bulkhead-project/bulkhead/volume"
)

// Options are a Cache's. All but Logger are required.
type Options struct {
	Client kubernetes.Interface
	// Wake is told of each pod, by its UID, of which an object has come, changed or gone. It
	// must not block.
	Wake   func(types.UID)
	Logger *slog.Logger
}

// Cache holds the objects. Its methods may be called at once.
type Cache struct {
	o    Options
	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu    sync.Mutex
	items map[key]*item
	views map[types.UID]*view
}

// key names an object.
type key struct{ kind, namespace, name string }

const (
	configMap = "configmap"
	secret    = "secret"
	services  = "services" // all of a namespace, or the one of the key's name
	class     = "runtimeclass.node.k8s.io"
)

// New makes a cache. The caller calls Close.
func New(o Options) *Cache {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Cache{o: o, items: map[key]*item{}, views: map[types.UID]*view{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Close ends all watches, and returns when they have ended.
func (c *Cache) Close() {
	c.stop()
	c.wg.Wait()
}

// Of are the objects that a pod refers to. They are watched until release is called, once for each
// Of.
func (c *Cache) Of(pod *corev1.Pod) (own volume.Objects, release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.views[pod.UID]
	if v == nil {
		v = c.view(pod)
	}
	v.refs++
	return v, func() { c.release(v) }
}

// Known has the objects of a pod watched, and tells whether it is known of all of them whether they
// are there.
func (c *Cache) Known(pod *corev1.Pod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.views[pod.UID]
	if v == nil {
		v = c.view(pod)
	}
	for _, i := range v.items {
		if !i.known {
			return false
		}
	}
	return true
}

// Refer has what a pod refers to now be watched as well: its ephemeral containers are added while it runs.
func (c *Cache) Refer(pod *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.views[pod.UID]
	if v == nil {
		return
	}
	for _, k := range references(pod) {
		if v.items[k] == nil {
			c.refer(k, v)
		}
	}
}

// view makes the view of a pod. It is called with mu held.
func (c *Cache) view(pod *corev1.Pod) *view {
	v := &view{c: c, uid: pod.UID, pod: pod, namespace: pod.Namespace}
	c.views[pod.UID] = v
	for _, k := range references(pod) {
		c.refer(k, v)
	}
	return v
}

// Forget drops what is watched for a pod that never ran here.
func (c *Cache) Forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.views[uid]; v != nil && v.refs == 0 {
		c.drop(v)
	}
}

func (c *Cache) release(v *view) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v.refs--; v.refs == 0 && c.views[v.uid] == v {
		c.drop(v)
	}
}

// drop is called with mu held.
func (c *Cache) drop(v *view) {
	delete(c.views, v.uid)
	for _, t := range v.tokens {
		if t.timer != nil {
			t.timer.Stop()
		}
	}
	for k, i := range v.items {
		delete(i.views, v)
		if len(i.views) == 0 {
			i.stop()
			delete(c.items, k)
		}
	}
}

// refer has a view have the object k. It is called with mu held.
func (c *Cache) refer(k key, v *view) {
	i := c.items[k]
	if i == nil {
		i = &item{views: map[*view]bool{}, came: make(chan struct{})}
		var ctx context.Context
		ctx, i.stop = context.WithCancel(c.ctx)
		c.items[k] = i
		c.wg.Go(func() { c.watch(ctx, k, i) })
	}
	i.views[v] = true
	if v.items == nil {
		v.items = map[key]*item{}
	}
	v.items[k] = i
}
