package objects

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// item is one watched object. Its fields are guarded by the cache's lock.
type item struct {
	stop   context.CancelFunc
	views  map[*view]bool
	known  bool          // whether object is valid
	came   chan struct{} // closed when known becomes true
	object any           // nil if it does not exist
	// services are the Services of a namespace by name, if the item is of that kind.
	services map[string]*corev1.Service
}

// firstPause and lastPause bound the pauses of a failing watch. A node is authorised for an object only some moments
// after a pod that refers to it was bound.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 30 * time.Second
)

// watch watches one object, or the Services of a namespace, until ctx ends.
func (c *Cache) watch(ctx context.Context, k key, i *item) {
	if k.kind == services {
		c.watchServices(ctx, k, i)
		return
	}
	selector, of := fields.OneTermEqualSelector("metadata.name", k.name).String(), c.source(k)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return of.list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return of.watch(ctx, o)
		},
	}
	c.reflect(ctx, lw, of.expected, &store{c, i})
}

// source lists and watches the objects of a kind.
type source struct {
	list     func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch    func(context.Context, metav1.ListOptions) (watch.Interface, error)
	expected runtime.Object
}

func (c *Cache) source(k key) source {
	switch k.kind {
	case secret:
		of := c.o.Client.CoreV1().Secrets(k.namespace)
		return source{listed(of.List), of.Watch, &corev1.Secret{}}
	case class:
		of := c.o.Client.NodeV1().RuntimeClasses()
		return source{listed(of.List), of.Watch, &nodev1.RuntimeClass{}}
	}
	of := c.o.Client.CoreV1().ConfigMaps(k.namespace)
	return source{listed(of.List), of.Watch, &corev1.ConfigMap{}}
}

// listed converts a typed list function.
func listed[L runtime.Object](
	list func(context.Context, metav1.ListOptions) (L, error),
) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
}

// reflect stores the results of a list and a watch until ctx ends.
func (c *Cache) reflect(ctx context.Context, lw *cache.ListWatch, expected runtime.Object, into cache.ReflectorStore) {
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, c.o.Client), expected, into,
		cache.ReflectorOptions{
			Name:    "objects",
			Backoff: &wait.Backoff{Duration: firstPause, Cap: lastPause, Steps: 10, Factor: 2, Jitter: 0.2},
		})
	reflector.RunWithContext(ctx)
}

// store stores the one object that a reflector sees.
type store struct {
	c *Cache
	i *item
}

func (s *store) Add(object any) error    { s.set(object); return nil }
func (s *store) Update(object any) error { s.set(object); return nil }
func (s *store) Delete(any) error        { s.set(nil); return nil }
func (s *store) Resync() error           { return nil }

func (s *store) Replace(list []any, _ string) error {
	if len(list) > 0 {
		s.set(list[0])
	} else {
		s.set(nil)
	}
	return nil
}

// set stores the object's current state and wakes the pods that use it.
func (s *store) set(object any) {
	s.c.mu.Lock()
	i := s.i
	if i.known && i.object == nil && object == nil {
		s.c.mu.Unlock()
		return
	}
	i.object = object
	if !i.known {
		i.known = true
		close(i.came)
	}
	var wake []*view
	for v := range i.views {
		v.notify()
		wake = append(wake, v)
	}
	s.c.mu.Unlock()
	for _, v := range wake {
		s.c.o.Wake(v.uid)
	}
}
