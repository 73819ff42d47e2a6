package objects

import (
	"context"
	"fmt"

	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Handler is the runtime handler of a pod's RuntimeClass, empty for a pod that names none. The error matches
// volume.ErrNotFound where there is no such class. Until that is known it waits for a moment, and fails then. The pod was
// given its objects (Of).
func (c *Cache) Handler(ctx context.Context, uid types.UID) (string, error) {
	c.mu.Lock()
	v := c.views[uid]
	c.mu.Unlock()
	if v == nil {
		return "", fmt.Errorf("pod %s is not watched for", uid)
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
