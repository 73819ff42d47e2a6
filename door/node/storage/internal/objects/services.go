package objects

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// master is the Service of the API server. Every pod gets its variables.
var master = key{services, metav1.NamespaceDefault, "kubernetes"}

// serviceKeys returns the Services that become variables of a pod: the API server's, and those in the pod's namespace
// unless the pod disables service links.
func serviceKeys(pod *corev1.Pod) []key {
	if own := pod.Spec.EnableServiceLinks; own != nil && !*own {
		return []key{master}
	}
	all := key{services, pod.Namespace, ""}
	if pod.Namespace == master.namespace {
		return []key{all} // it includes the API server's
	}
	return []key{all, master}
}

// watchServices watches Services until ctx ends.
func (c *Cache) watchServices(ctx context.Context, k key, i *item) {
	selector := fields.Everything()
	if k.name != "" {
		selector = fields.OneTermEqualSelector("metadata.name", k.name)
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector.String()
			return c.o.Client.CoreV1().Services(k.namespace).List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector.String()
			return c.o.Client.CoreV1().Services(k.namespace).Watch(ctx, o)
		},
	}
	c.reflect(ctx, lw, &corev1.Service{}, &serviceStore{c, i})
}

// serviceStore stores the Services that a reflector sees. Only the first list wakes the pods: a container gets its
// variables when it starts.
type serviceStore struct {
	c *Cache
	i *item
}

func (s *serviceStore) Add(object any) error    { return s.change(object, true) }
func (s *serviceStore) Update(object any) error { return s.change(object, true) }
func (s *serviceStore) Delete(object any) error { return s.change(object, false) }
func (s *serviceStore) Resync() error           { return nil }

func (s *serviceStore) change(object any, there bool) error {
	service, ok := object.(*corev1.Service)
	if !ok {
		return fmt.Errorf("not a Service: %T", object)
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	next := maps.Clone(s.i.services)
	if next == nil {
		next = map[string]*corev1.Service{}
	}
	if delete(next, service.Name); there {
		next[service.Name] = service
	}
	s.i.services = next
	return nil
}

// Replace stores a whole list.
func (s *serviceStore) Replace(list []any, _ string) error {
	next := map[string]*corev1.Service{}
	for _, object := range list {
		if service, ok := object.(*corev1.Service); ok {
			next[service.Name] = service
		}
	}
	var wake []*view
	s.c.mu.Lock()
	s.i.services = next
	if !s.i.known {
		s.i.known = true
		close(s.i.came)
		for v := range s.i.views {
			v.notify()
			wake = append(wake, v)
		}
	}
	s.c.mu.Unlock()
	for _, v := range wake {
		s.c.o.Wake(v.uid)
	}
	return nil
}

// Services returns the Services that become variables of a pod. It waits a moment for them to become known, and then
// fails. It returns none for a pod without a view (see Of).
func (c *Cache) Services(ctx context.Context, uid types.UID) (out []*corev1.Service, err error) {
	c.mu.Lock()
	v := c.views[uid]
	c.mu.Unlock()
	if v == nil {
		return nil, nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for _, k := range serviceKeys(v.pod) {
		c.mu.Lock()
		i := v.items[k]
		c.mu.Unlock()
		select {
		case <-i.came:
		case <-timer.C:
			return nil, fmt.Errorf("services have not yet been read at least once, cannot construct envvars")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		c.mu.Lock()
		for _, s := range i.services {
			out = append(out, s)
		}
		c.mu.Unlock()
	}
	return out, nil
}
