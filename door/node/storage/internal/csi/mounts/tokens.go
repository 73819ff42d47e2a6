package mounts

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/tokens"
)

// tokenCache keeps the tokens for drivers until they must be refreshed.
type tokenCache struct {
	client kubernetes.Interface

	mu  sync.Mutex
	all map[tokenKey]tokens.Token
}

// tokenKey names a token. A pod has one for each audience and lifetime.
type tokenKey struct {
	uid      types.UID
	audience string
	seconds  int64
}

// get returns a token of a volume's pod.
func (c *tokenCache) get(ctx context.Context, r *record, q storagev1.TokenRequest) (tokens.Token, error) {
	k := tokenKey{uid: r.UID, audience: q.Audience}
	if q.ExpirationSeconds != nil {
		k.seconds = *q.ExpirationSeconds
	}
	c.mu.Lock()
	has, is := c.all[k]
	c.mu.Unlock()
	if is && time.Now().Before(has.Refresh) {
		return has, nil
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Pod, UID: r.UID},
		Spec:       corev1.PodSpec{ServiceAccountName: r.ServiceAccount},
	}
	got, err := tokens.Request(ctx, c.client, pod, &corev1.ServiceAccountTokenProjection{
		Audience: q.Audience, ExpirationSeconds: q.ExpirationSeconds,
	})
	if err != nil {
		return got, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[tokenKey]tokens.Token{}
	}
	c.all[k] = got
	return got, nil
}

// forget drops the tokens of a pod.
func (c *tokenCache) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.all {
		if k.uid == uid {
			delete(c.all, k)
		}
	}
}
