package objects

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/internal/retry"
	"github.com/bulkhead-project/bulkhead/volume"
)

// view is the objects of one pod. Its fields are guarded by the cache's lock.
type view struct {
	c         *Cache
	uid       types.UID
	pod       *corev1.Pod
	namespace string
	tokens    []*token
	refs      int
	items     map[key]*item
	changed   chan struct{}
}

// patience is how long a pod waits for an object about which the API server has not answered yet.
const patience = 2 * time.Second

// ConfigMap implements volume.Objects.
func (v *view) ConfigMap(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	object, err := v.get(ctx, key{configMap, v.namespace, name})
	if err != nil {
		return nil, err
	}
	return object.(*corev1.ConfigMap), nil
}

// Secret implements volume.Objects.
func (v *view) Secret(ctx context.Context, name string) (*corev1.Secret, error) {
	object, err := v.get(ctx, key{secret, v.namespace, name})
	if err != nil {
		return nil, err
	}
	return object.(*corev1.Secret), nil
}

func (v *view) get(ctx context.Context, k key) (any, error) {
	v.c.mu.Lock()
	i := v.items[k]
	if i == nil { // no specification names it
		i = &item{}
	}
	known, came := i.known, i.came
	v.c.mu.Unlock()
	if !known && came != nil && !retry.Sleep(ctx, patience, came) {
		return nil, ctx.Err()
	}
	v.c.mu.Lock()
	defer v.c.mu.Unlock()
	switch {
	case !i.known && came != nil:
		return nil, fmt.Errorf("the API server has not yet answered whether %s %q exists", k.kind, k.name)
	case i.object == nil:
		return nil, volume.NotFound(k.kind, k.name)
	}
	return i.object, nil
}

// Changed implements volume.Objects.
func (v *view) Changed() <-chan struct{} {
	v.c.mu.Lock()
	defer v.c.mu.Unlock()
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	return v.changed
}

// notify wakes the waiters of Changed. It is called with the cache's lock held.
func (v *view) notify() {
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}
