// Package tokens requests service account tokens for a node's pods. Each token is bound to its pod and becomes invalid
// with it.
package tokens

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Token is an issued token.
type Token struct {
	Text []byte
	// Refresh is when the next token should be requested. Expires is when this one becomes invalid.
	Refresh, Expires time.Time
}

// maxAge is the age at which a token is replaced at the latest. jitter spreads the replacements of many pods.
const (
	maxAge = 24 * time.Hour
	jitter = 10 * time.Second
)

// Request requests a token of the pod's service account.
func Request(
	ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, source *corev1.ServiceAccountTokenProjection,
) (Token, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: source.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	asked := time.Now()
	got, err := client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return Token{}, fmt.Errorf("failed to fetch token: %w", err)
	}
	// Use the lifetime, not the expiry time: the API server's clock may differ from ours, and ours may be set.
	life := got.Status.ExpirationTimestamp.Sub(asked)
	if seconds := got.Spec.ExpirationSeconds; seconds != nil {
		life = time.Duration(*seconds) * time.Second
	}
	return Token{
		Text: []byte(got.Status.Token), Expires: asked.Add(life),
		Refresh: asked.Add(min(life*8/10, maxAge) - time.Duration(rand.Int64N(int64(jitter)))),
	}, nil
}
