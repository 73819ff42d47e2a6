// Package objects caches the ConfigMaps, Secrets and RuntimeClasses that a node's pods refer to. Each object has its
// own watch while a pod refers to it: a node is not allowed more. Services, which become pods' variables, are watched
// in the namespaces of the node's pods.
package objects

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/bulkhead-project/bulkhead/volume"
)

// Options configures a Cache. All fields but Logger are required.
type Options struct {
	Client kubernetes.Interface
	// Wake is called with the UID of a pod when one of its objects was created, changed or deleted. It must not block.
	Wake   func(types.UID)
	Logger *slog.Logger
}

// Cache holds the objects. It is safe for concurrent use.
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
	services  = "services" // all of a namespace, or the one with the key's name
	class     = "runtimeclass.node.k8s.io"
)

// New returns a cache. The caller must call Close.
func New(o Options) *Cache {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	c := &Cache{o: o, items: map[key]*item{}, views: map[types.UID]*view{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Close stops all watches and waits for their end.
func (c *Cache) Close() {
	c.stop()
	c.wg.Wait()
}

// Of returns the objects that a pod refers to. They are watched until release is called, once for each Of.
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

// Known starts watching a pod's objects, and reports whether the cache knows for each of them if it exists.
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

// Refer also watches the objects that the pod refers to now. Ephemeral containers are added while a pod runs.
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

// view creates the view of a pod. It is called with mu held.
func (c *Cache) view(pod *corev1.Pod) *view {
	v := &view{c: c, uid: pod.UID, pod: pod, namespace: pod.Namespace}
	c.views[pod.UID] = v
	for _, k := range references(pod) {
		c.refer(k, v)
	}
	return v
}

// Forget stops the watches for a pod that never ran here.
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

// refer adds the object k to a view. It is called with mu held.
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
