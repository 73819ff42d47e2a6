package objects

import (
	"context"
	"fmt"

	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Handler returns the runtime handler of a pod's RuntimeClass, or "" if the pod names none. It waits a moment for the
// class to become known, and then fails. The error matches volume.ErrNotFound if the class does not exist. Of or Known
// must have been called for the pod.
func (c *Cache) Handler(ctx context.Context, uid types.UID) (string, error) {
	c.mu.Lock()
	v := c.views[uid]
	c.mu.Unlock()
	if v == nil {
		return "", fmt.Errorf("the objects of pod %s are not watched", uid)
	}
	name := v.pod.Spec.RuntimeClassName
	if name == nil || *name == "" {
		return "", nil
	}
	object, err := v.get(ctx, key{class, "", *name})
	if err != nil {
		return "", err
	}
	return object.(*nodev1.RuntimeClass).Handler, nil
}
